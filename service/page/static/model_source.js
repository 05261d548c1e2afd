// Registered models as the service lists them, and where MLflow shows them to browsers.

import { getJson } from "./api.js";

const LOOKED_AT = 50; // jobs

/** Where a model stands in `/v1` or, behind `#`, in the page. */
export function modelPath(name, version = null) {
  return `/models/${encodeURIComponent(name)}${version === null ? "" : `/versions/${encodeURIComponent(version)}`}`;
}

export function readModels(cursor, signal) {
  return getJson("/v1/models", { cursor }, signal);
}

export function readModel(name, signal) {
  return getJson(`/v1${modelPath(name)}`, {}, signal);
}

export function readVersions(name, cursor, signal) {
  return getJson(`/v1${modelPath(name)}/versions`, { cursor }, signal);
}

/** A version by number or alias, with its lineage. */
export async function readVersion(name, version, signal) {
  const path = `/v1${modelPath(name, version)}`;
  const [found, lineage] = await Promise.all([getJson(path, {}, signal), getJson(`${path}/lineage`, {}, signal)]);
  return { found, lineage };
}

/** The address of MLflow, as links of the newest jobs have it; null where none tells it. */
export async function readMlflowRoot(signal) {
  try {
    const { items } = await getJson("/v1/jobs", { limit: LOOKED_AT }, signal);
    return items.map(mlflowRoot).find(Boolean) ?? null;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null; // whoever may see models may not see jobs: then without these links
  }
}

/** The address of MLflow, as the link to a job's run has it; null without one. */
export function mlflowRoot(job) {
  const link = job.links?.mlflow ?? "";
  return link.includes("/#/") ? link.slice(0, link.indexOf("/#/")) : null;
}

/** Of a model, or of one of its versions, in MLflow; null where that is not known. */
export function inMlflow(root, name, version = null) {
  return root ? `${root}/#/models/${encodeURIComponent(name)}${version === null ? "" : `/versions/${encodeURIComponent(version)}`}` : null;
}

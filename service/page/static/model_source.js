// Registered models as the results of jobs tell of them. A route that lists the registry itself takes this file's place.

import { JobList } from "./job_list.js";

const LOOKED_AT = 1000; // jobs

/** `{models: [{model, job}], mlflow, isWhole}`, newest first; `mlflow`: where the whole registry is shown, or null. */
export async function readModels(signal, rootOf) {
  const list = new JobList({ state: ["SUCCEEDED"] }, signal);
  await list.readUntil(LOOKED_AT);
  const jobs = [...list.jobs.values()];
  const mlflow = jobs.map(rootOf).find(Boolean) ?? null;
  const models = jobs.flatMap((job) => (job.result?.models ?? []).map((model) => ({ model, job })));
  return { models, mlflow, isWhole: list.isWhole };
}

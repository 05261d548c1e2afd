// The registered models, and the versions of one of them.

import { h, outward, put } from "./dom.js";
import { when } from "./format.js";
import { inMlflow, modelPath, readMlflowRoot, readModel, readModels, readVersions } from "./model_source.js";
import { show } from "./notice.js";
import { pagedTable } from "./paged_table.js";

/** Show all models in `main` until `signal`. */
export function modelsView(main, signal) {
  const [note, area] = [h("p", { class: "quiet" }), h("div")];
  put(main, h("h1", { tabindex: "-1" }, "Models"), note, area);
  readMlflowRoot(signal).then((root) => put(note, root ? outward(`${root}/#/models`, "The registry in MLflow") : null), () => {});
  pagedTable(area, {
    label: "Models",
    names: ["Model", "Project", "Aliases", "Updated"],
    row: (one) => [h("a", { href: `#${modelPath(one.name)}` }, one.name), one.project, aliasLinks(one), when(one.updated_at)],
    read: (cursor) => readModels(cursor, signal),
    none: "No model is registered yet.",
  });
}

/** Show the versions of a model in `main` until `signal`. */
export function modelView(main, name, signal) {
  const area = h("div");
  put(main, h("h1", { tabindex: "-1" }, name), area);
  show(area, "the model", async () => {
    const [model, root] = await Promise.all([readModel(name, signal), readMlflowRoot(signal)]);
    const versions = h("div");
    pagedTable(versions, {
      label: "Versions",
      names: ["Version", "Aliases", "Network", "Job", "Registered"],
      row: (one) => [h("a", { href: `#${modelPath(name, one.version)}` }, `Version ${one.version}`), namesOf(model, one.version).join(", "),
        one.network ?? "", one.job_id ? h("a", { href: `#/jobs/${encodeURIComponent(one.job_id)}/result` }, one.job_id) : "", when(one.created_at)],
      read: (cursor) => readVersions(name, cursor, signal),
      none: "The model has no version.",
    });
    return [h("p", { class: "quiet" }, `In project ${model.project}. `, root ? outward(inMlflow(root, name), "In MLflow") : null),
      model.description ? h("p", { class: "notes" }, model.description) : null, h("h2", null, "Versions"), versions];
  });
}

function aliasLinks({ name, aliases }) {
  const links = Object.entries(aliases).map(([alias, version], place) => [place ? ", " : "",
    h("a", { href: `#${modelPath(name, version)}`, "aria-label": `${name} ${alias}, version ${version}` }, `${alias} → ${version}`)]);
  return links.length ? h("span", null, links) : "";
}

function namesOf(model, version) {
  return Object.entries(model.aliases).filter(([, named]) => named === version).map(([alias]) => alias);
}

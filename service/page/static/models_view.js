// Models that jobs registered, with the job each came from; the registry itself is MLflow's.

import { h, outward, put } from "./dom.js";
import { when } from "./format.js";
import { mlflowRoot, table } from "./job_result.js";
import { readModels } from "./model_source.js";
import { empty, show } from "./notice.js";

/** Show models in `main` until `signal`. */
export function modelsView(main, signal) {
  const area = h("div");
  put(main, h("h1", { tabindex: "-1" }, "Models"), area);
  show(area, "models", async () => {
    const { models, mlflow, isWhole } = await readModels(signal, mlflowRoot);
    const note = h("p", { class: "quiet" }, "As jobs registered them; an alias may have moved since. ",
      mlflow ? outward(`${mlflow}/#/models`, "The whole registry in MLflow") : null, isWhole ? null : " Older jobs are not looked at.");
    if (!models.length) return [note, empty("No job has registered a model yet.")];
    return [note, table("Models", ["Model", "Version", "Alias", "Network", "Job", "Finished"], models.map(({ model, job }) => [
      linked(mlflow, model), model.version, model.alias, model.task ? `${model.network}, ${model.task}` : model.network,
      h("a", { href: `#/jobs/${job.job_id}/result` }, job.name), when(job.finished_at)]), true)];
  });
}

function linked(mlflow, { name, version }) {
  return mlflow ? outward(`${mlflow}/#/models/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`, name) : name;
}

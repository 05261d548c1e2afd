// What a job left: figures beside what no learning would score, tables of tasks, models, a marked sentence.

import { h, outward, put } from "./dom.js";
import { figure } from "./format.js";
import { scrolling } from "./job_overview.js";
import { inMlflow, mlflowRoot, modelPath } from "./model_source.js";
import { empty } from "./notice.js";

export function resultPanel(body, first) {
  let shown;
  const onJob = (job) => {
    if (job.result === shown) return;
    shown = job.result;
    put(body, h("h2", null, "Result"), shown ? partsOf(shown, job) : empty("The job has left no result yet."));
  };
  onJob(first);
  return { onJob };
}

function partsOf(result, job) {
  const figures = Object.entries(result.evaluation ?? {});
  return [
    result.search ? [h("h3", null, "Verdict"), h("p", null, result.search.verdict), winner(result.search)] : null,
    figures.length ? [h("h3", null, "Held-out figures"), table("Held-out figures", ["Figure", "Value", "Without learning"],
      figures.map(([name, value]) => [name, figure(value), figure(result.baselines?.[name])]))] : null,
    result.tasks?.length ? [h("h3", null, "Tasks"), table("Tasks", ["Task", "Metric", "Median", "Seeds", "TF-IDF", "Commonest label"],
      result.tasks.map((one) => [one.task, one.metric, figure(one.median), Object.keys(one.by_seed).length,
        figure(one.baselines?.tfidf?.[one.metric]), figure(one.baselines?.majority?.[one.metric])]))] : null,
    result.minimal_pairs?.length ? [h("h3", null, "Minimal pairs"), table("Minimal pairs", ["Network", "Accuracy", "Pairs"],
      result.minimal_pairs.map((one) => [one.network, figure(one.accuracy), one.num_pairs]))] : null,
    result.unseen_text?.length ? [h("h3", null, "Unseen text"), result.unseen_text.map((one) => table(one.source, [one.source, "Value"],
      Object.entries(one.figures).map(([name, value]) => [name, figure(value)])))] : null,
    result.probe?.length ? [h("h3", null, "Finetuning probe"), table("Probe", ["Step", "Tokens", "Mean"],
      result.probe.map((one) => [one.step, figure(one.tokens), figure(one.mean)]))] : null,
    result.models?.length ? [h("h3", null, "Models"), modelTable(result.models, job)] : null,
    result.example?.length ? [h("h3", null, "A held-out passage as the discriminator sees it"), passage(result.example)] : null,
    Object.keys(result.corpus ?? {}).length ? [h("h3", null, "Corpus"), table("Corpus", ["", ""],
      Object.entries(result.corpus).map(([name, value]) => [name, typeof value === "number" ? figure(value) : value]))] : null,
    Object.keys(result.left_out ?? {}).length ? [h("h3", null, "Left out"), table("Left out", ["What", "Why"], Object.entries(result.left_out))] : null,
  ];
}

function winner(search) {
  const point = Object.entries(search.winner ?? {});
  return point.length ? table("Winner", ["Field", "Value"], point.map(([name, value]) => [name, figure(value)])) : null;
}

/** Models that a job registered, with links to MLflow where the job's links tell where that is. */
export function modelTable(models, job) {
  const root = mlflowRoot(job);
  return table("Models", ["Name", "Version", "Alias", "Network", ...(root ? ["MLflow"] : [])], models.map((one) => [
    h("a", { href: `#${modelPath(one.name, one.version)}` }, one.name), one.version, one.alias, one.task ? `${one.network}, ${one.task}` : one.network,
    ...(root ? [outward(inMlflow(root, one.name, one.version), "this version")] : [])]));
}

function passage(tokens) {
  const marked = tokens.map(({ token, original, replaced_probability: chance }) => {
    const words = `${(chance * 100).toFixed(0)} % replaced${token === original ? "" : `; was ${original}`}`;
    const text = token.startsWith("##") ? token.slice(2) : ` ${token}`;
    if (token === original && chance < 0.5) return text;
    return h("mark", { class: token === original ? "false-alarm" : chance < 0.5 ? "missed" : "found", title: words }, text,
      h("small", null, ` (${token === original ? "" : `was ${original}, `}${(chance * 100).toFixed(0)} %)`));
  });
  return h("p", { class: "passage" }, marked);
}

/** A table; `isStacked`: on narrow screens each line stands as a list of its own. */
export function table(label, names, rows, isStacked = false) {
  // Roles, since a browser no longer sees a table in what is laid out as blocks.
  const role = (name) => (isStacked ? { role: name } : {});
  const head = h("tr", role("row"), names.map((name) => h("th", { scope: "col", ...role("columnheader") }, name)));
  const line = (cells) => h("tr", role("row"), cells.map((cell, place) => h("td", { "data-label": names[place], ...role("cell") }, cell)));
  return scrolling(label, h("table", { class: isStacked ? "stacked" : null, ...role("table") },
    h("thead", role("rowgroup"), head), h("tbody", role("rowgroup"), rows.map(line))));
}

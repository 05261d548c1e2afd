// One version of a model: what it is, what it was made of, its files and its card.

import { h, outward, put } from "./dom.js";
import { count, figure, stateBadge, when } from "./format.js";
import { inMlflow, modelPath, readMlflowRoot, readVersion } from "./model_source.js";
import { show } from "./notice.js";
import { saveButton } from "./saving.js";

/** Show a version, given by number or alias, in `main` until `signal`. */
export function versionView(main, name, version, signal) {
  const area = h("div");
  put(main, h("h1", { tabindex: "-1" }, `${name}, ${/^\d+$/.test(version) ? "version " : ""}${version}`),
    h("p", { class: "below" }, h("a", { href: `#${modelPath(name)}` }, "All versions")), area);
  show(area, "the version", async () => {
    const [{ found, lineage }, root] = await Promise.all([readVersion(name, version, signal), readMlflowRoot(signal)]);
    return [factList([
      ["Version", found.version],
      ["Aliases", found.aliases.join(", ") || "none"],
      ["Network", lineage.task ? `${lineage.network}, ${lineage.task}` : found.network],
      ["Registered", when(found.created_at, true)],
      ["In MLflow", root ? outward(inMlflow(root, name, found.version), "this version") : null],
    ]),
    h("h2", null, "Export"), exportPart(found, signal),
    h("h2", null, "Made of"), lineagePart(lineage),
    found.description ? [h("h2", null, "Model card"), h("div", { class: "scrolling", role: "region", "aria-label": "Model card", tabindex: "0" },
      h("p", { class: "notes" }, found.description))] : null];
  });
}

function exportPart({ name, version }, signal) {
  const line = () => h("code", null, `electra models download ${name}@${version}`);
  return [h("p", null, "A folder in the layout of Transformers: ", line()),
    saveButton("Save as a tar archive", { path: `/v1${modelPath(name, version)}/export`, name: `${name}-${version}.tar`,
      accept: "application/x-tar", signal, instead: ["Take the command: ", line()] })];
}

function factList(facts) {
  return h("dl", { class: "facts" }, facts.filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function lineagePart({ job, corpus, parents }) {
  const lines = [
    job ? h("li", null, "job ", h("a", { href: `#/jobs/${encodeURIComponent(job.job_id)}` }, job.name), " ", stateBadge(job.state),
      ` ${job.kind}, of ${job.owner} in ${job.project}`, h("ul", null, job.attempts.map((one) =>
        h("li", null, `attempt ${one.attempt}: `, when(one.started_at), " to ", when(one.ended_at))))) : null,
    corpus ? h("li", null, "corpus ", h("code", null, corpus.digest.slice(0, 12)), corpus.is_stored ? null : " (deleted)",
      h("ul", null, corpus.sources.map((source) => h("li", null, sourceWords(source))),
        Object.entries(corpus.figures).filter(([key]) => key.startsWith("num_")).map(([key, value]) => h("li", null, `${key}: ${figure(value)}`)))) : null,
    parents.map((one) => h("li", null, "began with ", parentPart(one))),
  ];
  return job || corpus || parents.length ? h("ul", null, lines) : h("p", { class: "quiet" }, "No job of this service and project made it.");
}

function parentPart({ name, version, uri, lineage }) {
  if (!name) return h("code", null, uri ?? "unknown weights");
  const words = `${name} version ${version ?? "unknown"}`;
  return lineage ? [h("a", { href: `#${modelPath(lineage.name, lineage.version)}` }, words), lineagePart(lineage)] : words;
}

function sourceWords(source) {
  const size = source.num_files === undefined || source.num_files === null ? "" : `, ${count(source.num_files)} files`;
  const { uris, name, uri } = source.words ?? {};
  const place = [uris, uri, name].flat().filter((one) => typeof one === "string").join(", ");
  return `${source.type ?? "source"} ${place}${size}`.trim();
}

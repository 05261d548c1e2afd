// Lines of jobs, which are changed in place: a line that is read, selected or focused stays the same element.

import { h, put, say } from "./dom.js";
import { fractionDone, progressWords, stateBadge, stateWords, when } from "./format.js";

const COLUMNS = ["State", "Job", "Progress", "Owner", "Labels", "Created"];

/** A table of jobs; `update(jobs)` changes it. */
export function jobTable(jobs) {
  // Roles, since narrow screens lay the lines out as blocks and browsers then no longer see a table.
  const body = h("tbody", { role: "rowgroup" });
  const head = h("tr", { role: "row" }, COLUMNS.map((name) => h("th", { scope: "col", role: "columnheader" }, name)));
  const element = h("table", { class: "jobs", role: "table", "aria-label": "Jobs" }, h("thead", { role: "rowgroup" }, head), body);
  const rows = new Map();
  const update = (now) => {
    const wanted = new Set(now.map((job) => job.job_id));
    for (const [id, row] of rows) if (!wanted.has(id)) (row.element.remove(), rows.delete(id));
    now.forEach((job, place) => {
      const row = rows.get(job.job_id) ?? jobRow(job);
      rows.set(job.job_id, row);
      row.update(job);
      if (body.children[place] !== row.element) body.insertBefore(row.element, body.children[place] ?? null);
    });
  };
  update(jobs);
  return { element, update };
}

function jobRow(first) {
  const cells = Object.fromEntries(COLUMNS.map((name) => [name, h("td", { role: "cell", "data-label": name })]));
  const bar = h("progress", { max: "1", "aria-label": `Progress of ${first.name}` });
  const words = h("span", { class: "quiet" });
  put(cells.Progress, bar, words);
  let shown = null;
  const update = (job) => {
    if (shown === job) return;
    if (shown?.state !== job.state || stateWords(shown) !== stateWords(job)) {
      put(cells.State, stateBadge(job.state), stateWords(job) ? h("small", null, stateWords(job)) : null);
    }
    if (shown?.name !== job.name) {
      put(cells.Job, h("a", { href: `#/jobs/${job.job_id}` }, job.name), h("small", { class: "id" }, `${job.kind} · ${job.job_id}`));
    }
    showProgress(job, bar, words);
    say(cells.Owner, job.project === "default" ? job.owner : `${job.owner} · ${job.project}`);
    const labels = Object.entries(job.labels ?? {}).map(([key, value]) => `${key}=${value}`);
    if (labels.join() !== cells.Labels.dataset.shown) {
      put(cells.Labels, labels.map((label) => h("span", { class: "label" }, label)));
      cells.Labels.dataset.shown = labels.join();
    }
    if (!shown) put(cells.Created, when(job.created_at));
    shown = job;
  };
  return { element: h("tr", { role: "row" }, Object.values(cells)), update };
}

/** A bar and words for where a job is; the reason in place of them where it failed. */
export function showProgress(job, bar, words) {
  const done = fractionDone(job);
  bar.hidden = done === null || job.state === "QUEUED" || job.state === "SUCCEEDED";
  if (done !== null) bar.value = done;
  const failed = job.state === "FAILED" && job.failure ? `${job.failure.reason ?? job.failure.code}: ${job.failure.message}` : null;
  say(words, failed ?? job.waiting?.message ?? (job.state === "SUCCEEDED" ? "" : progressWords(job)));
}

// What jobs took of the cluster in a span of days, by owner, project, kind or day.

import { getJson } from "./api.js";
import { h, put } from "./dom.js";
import { count, figure, short } from "./format.js";
import { table } from "./job_result.js";
import { empty, show } from "./notice.js";
import { saveButton } from "./saving.js";

const GROUPS = { owner: "Owner", project: "Project", kind: "Kind", day: "Day" };
const DAY_MS = 86_400_000;

/** Show usage in `main` until `signal`; `query`: `by`, `from` and `to`, the last day. */
export function usageView(main, query, signal) {
  const by = query.get("by") in GROUPS ? query.get("by") : "owner";
  const [from, to] = [query.get("from") ?? "", query.get("to") ?? ""];
  const group = h("select", { name: "by", id: "by" }, Object.entries(GROUPS).map(([value, words]) => h("option", { value, selected: value === by }, words)));
  const day = (name, value) => h("input", { type: "date", name, id: name, value });
  const [first, last] = [day("from", from), day("to", to)];
  const turn = (event) => {
    event.preventDefault();
    const wanted = Object.entries({ by: group.value, from: first.value, to: last.value }).filter(([, value]) => value);
    location.hash = `#/usage?${new URLSearchParams(wanted)}`;
  };
  const area = h("div");
  put(main, h("h1", { tabindex: "-1" }, "Usage"),
    h("form", { class: "filters", onsubmit: turn },
      h("label", { for: "by" }, "By"), group, h("label", { for: "from" }, "From"), first, h("label", { for: "to" }, "to, that day too"), last,
      h("button", { type: "submit", class: "primary" }, "Show")),
    h("p", { class: "quiet" }, "Days of UTC; without any, the last 30 days."), area);
  const asked = { group_by: by, from, to: dayAfter(to) };
  show(area, "usage", async () => {
    const { rows, total } = await getJson("/v1/usage", asked, signal);
    if (!rows.length) return empty("Nothing ran in these days.");
    const figures = (row) => [figure(row.cpu_hours), figure(row.gpu_hours), short(row.flops), short(row.tokens), count(row.jobs), count(row.attempts)];
    const names = [GROUPS[by], "CPU-hours", "GPU-hours", "FLOPs", "Tokens", "Jobs", "Attempts"];
    const lines = [...rows.map((row) => [row.group[by], ...figures(row)]), [h("strong", null, "All"), ...figures(total)]];
    return [table("Usage", names, lines, true),
      saveButton("Save as CSV", { path: "/v1/usage", query: { ...asked, format: "csv" }, name: `usage-by-${by}.csv`, accept: "text/csv", signal })];
  });
}

// The service's end is no part of the window; a reader's last day is.
function dayAfter(day) {
  const at = Date.parse(`${day}T00:00:00Z`);
  return Number.isNaN(at) ? day : new Date(at + DAY_MS).toISOString().slice(0, 10);
}

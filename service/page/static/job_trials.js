// What a search has tried: the leaderboard and every other order that the service knows.

import { getJson } from "./api.js";
import { h, put, say } from "./dom.js";
import { OVER, count, figure } from "./format.js";
import { table } from "./job_result.js";
import { empty, show } from "./notice.js";

const PAGE = 50;
const REREAD = 10000;
const SORTS = { rank: "the best first", number: "as tried", score: "by score", flops: "by FLOPs", step: "by steps" };

export function trialsPanel(body, first, _history, signal) {
  let job = first;
  const cursors = [null]; // of the pages up to this one
  const sort = h("select", { "aria-label": "Order" }, Object.entries(SORTS).map(([name, words]) => h("option", { value: name }, words)));
  const area = h("div");
  const summary = h("p", { class: "quiet", role: "status" });
  const pager = h("nav", { class: "pager", "aria-label": "Pages of trials" });
  const path = `/v1/jobs/${encodeURIComponent(job.job_id)}/trials`;
  const read = async () => {
    const page = await getJson(path, { sort: sort.value, limit: PAGE, cursor: cursors.at(-1) }, signal);
    say(summary, page.total ? `${count(page.total)} trials, compared by ${page.metric} (${page.mode === "min" ? "less" : "more"} is better)` : "");
    const turn = (words, isOn, move) => h("button", { type: "button", disabled: !isOn, onclick: () => (move(), load()) }, words);
    put(pager, page.total > PAGE ? [turn("Previous", cursors.length > 1, () => cursors.pop()), h("span", null, `Page ${cursors.length}`),
      turn("Next", Boolean(page.next_cursor), () => cursors.push(page.next_cursor))] : null);
    return page.items.length ? trialTable(page.items) : empty("No trials yet.");
  };
  const load = () => show(area, "trials", read);
  const timer = setInterval(async () => {
    if (OVER.has(job.state) || document.hidden || area.contains(document.activeElement)) return;
    try {
      put(area, await read());
    } catch {
      // The next look may find them; the first said what was wrong.
    }
  }, REREAD);
  signal.addEventListener("abort", () => clearInterval(timer));
  sort.addEventListener("change", () => (cursors.splice(1), load()));
  put(body, h("h2", null, "Trials"), h("label", null, "Order ", sort), summary, area, pager);
  load();
  return { onJob: (now) => (job = now) };
}

function trialTable(trials) {
  const fields = [...new Set(trials.flatMap((trial) => Object.keys(trial.point)))];
  // Fields by their last word, where that is nobody else's.
  const last = (field) => field.split(".").at(-1);
  const names = fields.map((field) => (fields.filter((other) => last(other) === last(field)).length > 1 ? field : last(field)));
  return table("Trials", ["Trial", "State", "Score", ...names, "Step", "FLOPs", "Why"], trials.map((one) => [
    `${one.number}${one.is_final ? " (final)" : ""}`, one.state, figure(one.score), ...fields.map((field) => (field in one.point ? figure(one.point[field]) : "base")),
    count(one.step), figure(one.flops), one.reason]));
}

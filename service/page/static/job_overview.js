// What a job is and how it came to where it is: facts, failure, attempts and a diary.

import { h, put } from "./dom.js";
import { count, duration, stateBadge, when } from "./format.js";
import { empty } from "./notice.js";

export function overviewPanel(body, job, history) {
  const failure = h("div");
  const facts = h("dl", { class: "facts" });
  const notes = h("div");
  const attempts = h("div");
  const diary = h("div");
  put(body, failure, h("h2", null, "Facts"), facts, notes, h("h2", null, "Attempts"), attempts, h("h2", null, "What happened"), diary);
  const onJob = (now) => {
    put(failure, now.failure ? failureBox(now) : null);
    put(facts, factsOf(now).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
    put(notes, now.notes ? [h("h2", null, "Notes"), h("p", { class: "notes" }, now.notes)] : null);
  };
  const onHistory = (told) => {
    put(attempts, attemptsOf(told));
    put(diary, told.isMissing ? h("p", { class: "quiet" }, "The beginning is no longer kept.") : null, diaryOf(told));
  };
  onJob(job);
  onHistory(history);
  return { onJob, onHistory };
}

function failureBox({ failure, state }) {
  const where = [failure.stage, failure.step !== null && failure.step !== undefined ? `step ${count(failure.step)}` : null, `attempt ${failure.attempt}`];
  return h("div", { class: "problem" },
    h("strong", null, state === "FAILED" ? `Failed: ${failure.reason}` : `An earlier attempt ended: ${failure.reason}`),
    h("p", null, failure.message),
    h("p", { class: "quiet" }, `${failure.code} · ${where.filter(Boolean).join(" · ")}`),
    failure.details?.length ? h("pre", null, failure.details.join("\n")) : null);
}

function factsOf(job) {
  const labels = Object.entries(job.labels ?? {}).map(([key, value]) => h("span", { class: "label" }, `${key}=${value}`));
  const limits = Object.entries(job.limits ?? {}).filter(([, value]) => value !== null).map(([name, value]) => `${name.replace("_seconds", "")} ${duration(value)}`);
  const told = job.progress;
  const facts = [
    ["Waiting", job.waiting ? `${job.waiting.reason}: ${job.waiting.message}` : null],
    ["Now", told?.message || null],
    ["Tokens", told?.tokens ? count(told.tokens) : null],
    ["Attempt", job.attempt || null],
    ["Priority", job.priority],
    ["Labels", labels.length ? labels : null],
    ["Limits", limits.length ? limits.join(", ") : null],
    ["Goes on with", job.goes_on_with?.replace("_", " ") ?? null],
    ["Created", when(job.created_at, true)],
    ["Started", job.started_at ? when(job.started_at, true) : null],
    ["Finished", job.finished_at ? when(job.finished_at, true) : null],
    ["Running time", job.running_seconds ? duration(job.running_seconds) : null],
  ];
  return facts.filter(([, value]) => value !== null);
}

function attemptsOf(history) {
  const attempts = [...history.attempts.values()];
  if (!attempts.length) return empty("None yet.");
  const row = (one) => h("tr", null, h("td", null, one.attempt), h("td", null, when(one.beganAt)), h("td", null, when(one.runsAt)),
    h("td", null, when(one.endedAt)), h("td", null, one.end, one.why ? h("small", null, one.why) : null));
  const names = ["Attempt", "Began", "Ran from", "Ended", "How"];
  return scrolling("Attempts", h("table", null, h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, attempts.map(row))));
}

function diaryOf(history) {
  if (!history.diary.length) return empty("Nothing yet.");
  const line = (one) => h("li", null, when(one.at), " ", one.state ? stateBadge(one.state) : one.words,
    one.state && one.attempt ? ` attempt ${one.attempt}` : null, one.why ? h("small", null, one.why) : null);
  return h("ol", { class: "diary" }, history.diary.slice(-200).reverse().map(line));
}

/** What is wider than a narrow screen scrolls by itself, by keyboard too. */
export function scrolling(label, content) {
  return h("div", { class: "scrolling", role: "region", "aria-label": label, tabindex: "0" }, content);
}

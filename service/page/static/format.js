// Numbers, times and states as people read them.

import { h } from "./dom.js";

export const STATES = ["QUEUED", "STARTING", "RUNNING", "PAUSING", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"];
export const ACTIVE = new Set(["STARTING", "RUNNING", "PAUSING", "CANCELLING"]);
export const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
// Shape beside the word: neither needs a colour.
const MARKS = { QUEUED: "○", STARTING: "◔", RUNNING: "▶", PAUSING: "◑", PAUSED: "‖", CANCELLING: "◒", SUCCEEDED: "✓", FAILED: "✕", CANCELLED: "–" };

const rounded = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 3 });
const plain = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 20, maximumSignificantDigits: 5 });
const whole = new Intl.NumberFormat("en-GB");
const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const brief = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** A state as a word with a mark. */
export function stateBadge(state) {
  const known = STATES.includes(state) ? state.toLowerCase() : "unknown";
  return h("span", { class: `state state-${known}` }, h("span", { "aria-hidden": "true" }, MARKS[state] ?? "?", " "), state);
}

/** The state, and what has been asked of the job besides. */
export function stateWords(job) {
  const wish = job.kill_requested ? "to be killed" : job.cancel_requested ? "to be cancelled" : job.pause_requested ? "to be paused" : "";
  const isPast = OVER.has(job.state) || (job.state === "PAUSED" && wish === "to be paused");
  return isPast || job.state === "CANCELLING" || job.state === "PAUSING" ? "" : wish;
}

/** `<time>` in the reader's own zone. */
export function when(iso, isLong = false) {
  if (!iso) return "–";
  const at = new Date(iso);
  return h("time", { datetime: iso, title: moment.format(at) }, (isLong ? moment : brief).format(at));
}

/** Seconds as at most two units. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let left = Math.max(0, Math.round(seconds));
  const first = units.findIndex(([, size]) => left >= size);
  if (first < 0) return "0 s";
  const words = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) words.push(`${count} ${name}`);
  }
  return words.join(" ");
}

/** Three digits, with k, M, G or T. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const power = Math.abs(value) < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(Math.abs(value) * 1.0005) / 3));
  return `${rounded.format(value / 1000 ** power)}${["", "k", "M", "G", "T"][power]}`;
}

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** A figure of five digits, by powers of ten where it is very large or small. */
export function figure(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : String(value);
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e9 || size < 1e-4) ? value.toExponential(3) : plain.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let power = 0;
  while (value >= 999.5 && power < units.length - 1) (value /= 1000), (power += 1);
  return `${power ? value.toPrecision(3) : value} ${units[power]}`;
}

/** What a job says it is doing, in a line; empty where it has said nothing. */
export function progressWords(job) {
  const told = job.progress;
  if (!told) return "";
  const words = [told.stage];
  if (told.step !== null && told.step !== undefined && told.num_train_steps) {
    words.push(`step ${count(told.step)} of ${count(told.num_train_steps)}`);
  } else if (told.fraction !== null && told.fraction !== undefined) words.push(`${Math.round(told.fraction * 100)} %`);
  if (told.tokens_per_second && job.state === "RUNNING") words.push(`${short(told.tokens_per_second)} tokens/s`);
  if (told.eta_seconds && job.state === "RUNNING") words.push(`${duration(told.eta_seconds)} left`);
  return words.join(" · ");
}

/** Between 0 and 1; null where nobody knows. */
export function fractionDone(job) {
  if (job.state === "SUCCEEDED") return 1;
  const told = job.progress;
  if (!told) return null;
  if (told.num_train_steps && told.step !== null && told.step !== undefined) return Math.min(1, told.step / told.num_train_steps);
  return told.fraction ?? null;
}

// What people are told: problems in the service's own words, states of loading and emptiness, and what is read aloud.

import { h, put, say } from "./dom.js";

const REFUSALS = {
  401: "Sign in with a key that is valid.",
  403: "Your key may see this, but not do it.",
  429: "Too many requests were sent with this key or from this address.",
};
const SPOKEN_EVERY = 1500;
let spoken = [];
let timer = null;

/** A problem as the service said it, with the faults it named. */
export function problemBox(problem, { onRetry = null } = {}) {
  const extra = REFUSALS[problem.status];
  const wait = problem.retryAfter ? ` Try again in ${problem.retryAfter} s.` : "";
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", null, problem.status ? `${problem.title} (${problem.status})` : problem.title ?? "Something went wrong"),
    h("p", null, problem.message),
    extra || wait ? h("p", null, `${extra ?? ""}${wait}`.trim()) : null,
    problem.errors?.length ? faultList(problem.errors) : null,
    problem.requestId ? h("p", { class: "quiet" }, "Request ", h("code", null, problem.requestId)) : null,
    onRetry ? h("button", { type: "button", onclick: onRetry }, "Try again") : null,
  );
}

/** Faults of a request: where, what rule, what was received. */
export function faultList(faults, beside = () => null) {
  const items = faults.map((fault) =>
    h(
      "li",
      null,
      h("code", null, fieldOf(fault.pointer) || "the whole"),
      ` ${fault.rule}`,
      fault.value !== null && fault.value !== undefined ? [", got ", h("code", null, fault.value)] : null,
      beside(fault),
    ),
  );
  return h("ul", { class: "faults" }, items);
}

/** `/spec/training/seed` as `training.seed`. */
export function fieldOf(pointer) {
  const keys = pointer.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  return (keys[0] === "spec" ? keys.slice(1) : keys).join(".");
}

export function loading(what) {
  return h("p", { class: "quiet", role: "status" }, `Loading ${what} …`);
}

export function empty(...words) {
  return h("p", { class: "empty" }, words);
}

/** Have something read aloud, together with what else is said about now. */
export function announce(text) {
  spoken.push(text);
  timer ??= setTimeout(() => {
    const said = spoken.length > 3 ? `${spoken.length} changes; the last: ${spoken.at(-1)}` : spoken.join(". ");
    say(document.getElementById("announcer"), said);
    [spoken, timer] = [[], null];
  }, SPOKEN_EVERY);
}

/** How the connection for events stands, at the head of the page. */
export function showConnection(status, problem = null) {
  const words = { live: "● Live", connecting: "○ Connecting …", offline: "✕ Offline: trying again", none: "" };
  const element = document.getElementById("connection");
  element.className = `connection-${status}`;
  element.title = problem?.message ?? "";
  say(element, words[status]);
}

/** Fill `panel` with what `load` makes, with words for the time until then and for a failure. */
export async function show(panel, what, load) {
  put(panel, loading(what));
  try {
    put(panel, await load());
  } catch (error) {
    if (error.name === "AbortError") return;
    put(panel, problemBox(error, { onRetry: () => show(panel, what, load) }));
  }
}

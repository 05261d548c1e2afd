// Requests to `/v1`, as any client sends them. A key stays in this tab's session storage and goes into no address.

// Two folders above this file, so that the service may stand behind a proxy under a path of its own.
const ROOT = new URL("../../", import.meta.url);
const KEY = "electra.key";
const OFFLINE = "The service does not answer. Is it running, and does this machine reach it?";

/** Whoever is told when a key is missing or refused. */
export const access = { onRefused: () => {} };

/** An answer that is no success, in its own words; status 0 where there was no answer. */
export class Problem extends Error {
  constructor(status, said = {}, retryAfter = null) {
    super(said.detail || said.title || `The service answered ${status}.`);
    this.status = status;
    this.title = said.title || "The request failed";
    this.code = said.code || "";
    this.errors = said.errors || [];
    this.requestId = said.request_id || "";
    this.retryAfter = retryAfter;
  }
}

export function hasKey() {
  return Boolean(sessionStorage.getItem(KEY));
}

/** Keep a key for this tab, or with null forget it. */
export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** The JSON of an answer. Raises Problem. */
export async function getJson(path, query, signal) {
  return (await send("GET", path, { query, signal })).json();
}

/** The text of an answer. Raises Problem. */
export async function getText(path, query, signal) {
  return (await send("GET", path, { query, signal, accept: "text/plain" })).text();
}

/** Send a body, or nothing, and give the JSON of the answer. Raises Problem. */
export async function sendJson(method, path, body, headers = {}) {
  return (await send(method, path, { body, headers })).json();
}

/** A name for one request, so that sent twice it acts once. */
export function newRequestName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The answer itself. Raises Problem, and AbortError where `signal` says so. */
export async function send(method, path, { query, body, headers = {}, signal, accept = "application/json" } = {}) {
  const url = new URL(path.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, one);
    }
  }
  const sent = { Accept: accept, ...headers };
  const key = sessionStorage.getItem(KEY);
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const options = { method, headers: sent, signal, credentials: "omit", redirect: "error", cache: "no-store" };
  let answer;
  try {
    answer = await fetch(url, { ...options, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { title: "No answer", detail: OFFLINE, code: "offline" });
  }
  if (!answer.ok) {
    const problem = await asProblem(answer);
    if (problem.status === 401) access.onRefused(problem);
    throw problem;
  }
  return answer;
}

async function asProblem(answer) {
  const seconds = Number(answer.headers.get("Retry-After"));
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // A proxy's own page, say: the status has to do.
  }
  return new Problem(answer.status, said, Number.isFinite(seconds) && seconds > 0 ? seconds : null);
}

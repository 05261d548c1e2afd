// Addresses to views. One view at a time is alive: its signal ends its requests and streams.

import { access, getJson, hasKey, setKey } from "./api.js";
import { corporaView } from "./corpora_view.js";
import { h, put } from "./dom.js";
import { jobView } from "./job_view.js";
import { jobsView } from "./jobs_view.js";
import { modelView, modelsView } from "./models_view.js";
import { empty, loading, showConnection } from "./notice.js";
import { queueView } from "./queue_view.js";
import { signInView } from "./sign_in.js";
import { submitView } from "./submit_view.js";
import { usageView } from "./usage_view.js";
import { versionView } from "./version_view.js";

const main = document.getElementById("main");
let alive = new AbortController();
let shownJob = null;

function route({ isFirst = false } = {}) {
  const [path, words] = location.hash.replace(/^#\/?/, "").split("?");
  const [place, id, tab, version] = path.split("/").map(decoded);
  const query = new URLSearchParams(words ?? "");
  if (place === "jobs" && id && shownJob?.id === id) return shownJob.turn(tab); // its stream goes on
  const held = main.contains(document.activeElement) ? document.activeElement.name : ""; // a filter that was changed
  alive.abort();
  alive = new AbortController();
  shownJob = null;
  showConnection("none");
  markPage(place || "jobs");
  const signal = alive.signal;
  if (place === "jobs" && id) shownJob = { id, turn: jobView(main, id, tab, signal) };
  else if (place === "submit") submitView(main, query, signal);
  else if (place === "queue") queueView(main, signal);
  else if (place === "models" && id && tab === "versions" && version) versionView(main, id, version, signal);
  else if (place === "models" && id) modelView(main, id, signal);
  else if (place === "models") modelsView(main, signal);
  else if (place === "corpora") corporaView(main, signal);
  else if (place === "usage") usageView(main, query, signal);
  else if (!place || place === "jobs") jobsView(main, query, goToJobs, signal);
  else put(main, h("h1", { tabindex: "-1" }, "Not here"), empty("There is no such page. ", h("a", { href: "#/jobs" }, "Jobs")));
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent || "Job"} · ELECTRA`;
  if (!isFirst) ((held && main.querySelector(`[name="${CSS.escape(held)}"]`)) || heading)?.focus();
  return undefined;
}

function goToJobs(wanted, { isQuiet = false } = {}) {
  const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
  const hash = `#/jobs${query.size ? `?${query}` : ""}`;
  if (isQuiet) history.replaceState(null, "", hash);
  else location.hash = hash;
}

function markPage(place) {
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.getAttribute("href") === `#/${place}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function signIn(problem = null) {
  alive.abort();
  alive = new AbortController();
  shownJob = null;
  showConnection("none");
  put(document.getElementById("account"));
  signInView(main, problem, start);
}

async function start() {
  put(main, loading("the page"));
  try {
    const me = await getJson("/v1/me");
    const leave = () => (setKey(null), signIn());
    put(document.getElementById("account"), me.method === "open" ? null : [
      h("span", { class: "quiet" }, me.owner), " ", h("button", { type: "button", onclick: leave }, "Sign out")]);
  } catch (problem) {
    if (problem.status === 401) return; // asked for a key already
  }
  route({ isFirst: true });
}

access.onRefused = (problem) => signIn(hasKey() ? problem : null);
addEventListener("hashchange", () => route());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the address of the view
  main.focus();
});
start();

// Who runs, who waits and in which order, who is kept outside.

import { h, put, say } from "./dom.js";
import { count, duration, progressWords, stateBadge, when } from "./format.js";
import { table } from "./job_result.js";
import { empty, loading, problemBox, showConnection } from "./notice.js";
import { readQueue } from "./queue_source.js";
import { follow } from "./stream.js";

const REREAD_PAUSE = 1500;
const SHOWN = 200;

/** Show the queue in `main` until `signal`. */
export function queueView(main, signal) {
  const area = h("div");
  const summary = h("p", { class: "quiet", role: "status" });
  const trouble = h("div");
  put(main, h("h1", { tabindex: "-1" }, "Queue"), summary, trouble, area);
  put(area, loading("the queue"));
  let timer = null;
  const read = async () => {
    timer = null;
    try {
      const queue = await readQueue(signal);
      say(summary, `${count(queue.active.length)} on the cluster, ${count(queue.waiting.length)}${queue.isWhole ? "" : " or more"} waiting, ${count(queue.paused.length)} paused`);
      const held = area.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      put(area, parts(queue));
      put(trouble);
      if (held) area.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (area.querySelector("table") === null) put(area);
      put(trouble, problemBox(error, { onRetry: read }));
    }
  };
  const soon = () => (timer ??= setTimeout(read, REREAD_PAUSE));
  const onEvent = (event) => (["metrics"].includes(event.name) ? null : soon());
  read();
  follow("/v1/events", { signal, onEvent, onStatus: showConnection }).catch((problem) => showConnection("offline", problem));
  signal.addEventListener("abort", () => clearTimeout(timer));
}

function parts({ active, waiting, paused }) {
  const link = (job) => h("a", { href: `#/jobs/${job.job_id}` }, job.name);
  const since = (job) => when(job.waiting?.since ?? job.created_at);
  const section = (title, none, names, rows) => [h("h2", null, title), rows.length ? table(title, names, rows.slice(0, SHOWN), true) : empty(none),
    rows.length > SHOWN ? h("p", { class: "quiet" }, `and ${count(rows.length - SHOWN)} more`) : null];
  // Reasons where the service gives them; without, the order says all that is known.
  const hasReasons = waiting.some((job) => job.waiting);
  const why = (job) => (hasReasons ? [job.waiting?.message ?? ""] : []);
  return [
    section("On the cluster", "Nothing runs.", ["State", "Job", "Owner", "Progress", "Running time"],
      active.map((job) => [stateBadge(job.state), link(job), job.owner, progressWords(job), duration(job.running_seconds)])),
    section("Waiting, in their order", "Nobody waits.", ["Place", "Job", "Owner", "Priority", "Since", ...(hasReasons ? ["Why"] : [])],
      waiting.map((job, place) => [job.waiting?.position ?? place + 1, link(job), job.owner, job.priority, since(job), ...why(job)])),
    section("Paused", "Nobody is paused.", ["State", "Job", "Owner", "Priority", "Progress"],
      paused.map((job) => [stateBadge(job.state), link(job), job.owner, job.priority, progressWords(job)])),
  ];
}

// Who runs, who waits, in which order and why, what owners hold, and what the cluster has left.

import { h, put, say } from "./dom.js";
import { count, figure, progressWords, stateBadge, when } from "./format.js";
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
      say(summary, `${count(queue.running.length)} of at most ${count(queue.max_running_jobs)} on the cluster, ${count(queue.waiting.length)} waiting, ${count(queue.paused.length)}${queue.hasAllPaused ? "" : " or more"} paused`);
      const held = area.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      put(area, parts(queue));
      put(trouble);
      if (held) area.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (area.querySelector("table, .facts") === null) put(area);
      put(trouble, problemBox(error, { onRetry: read }));
    }
  };
  const soon = () => (timer ??= setTimeout(read, REREAD_PAUSE));
  const onEvent = (event) => (["metrics"].includes(event.name) ? null : soon());
  read();
  follow("/v1/events", { signal, onEvent, onStatus: showConnection }).catch((problem) => showConnection("offline", problem));
  signal.addEventListener("abort", () => clearTimeout(timer));
}

function parts({ running, waiting, paused, owners, cluster }) {
  const link = (job) => h("a", { href: `#/jobs/${job.job_id}` }, job.name);
  const section = (title, none, names, rows) => [h("h2", null, title), rows.length ? table(title, names, rows.slice(0, SHOWN), true) : empty(none),
    rows.length > SHOWN ? h("p", { class: "quiet" }, `and ${count(rows.length - SHOWN)} more`) : null];
  return [
    h("h2", null, "Cluster"), clusterFacts(cluster),
    section("On the cluster", "Nothing runs.", ["State", "Job", "Owner", "Priority", "CPUs", "GPUs", "Since"],
      running.map((job) => [stateBadge(job.state), [link(job), yielded(job)], job.owner, job.priority, figure(job.num_cpus), job.num_gpus, when(job.run_started_at)])),
    section("Waiting, in their order", "Nobody waits.", ["Place", "Job", "Owner", "Priority", "CPUs", "GPUs", "Since", "Why"],
      waiting.map((job) => [job.waiting?.position ?? "–", [link(job), yielded(job)], job.owner, job.priority, figure(job.num_cpus), job.num_gpus,
        when(job.waiting?.since ?? job.created_at), job.waiting?.message ?? ""])),
    section("Owners", "Nobody runs or waits.", ["Owner", "Jobs", "CPUs", "GPUs", "Share now", "Share of late", "Quota"],
      owners.map((one) => [one.owner, one.num_running_jobs, figure(one.num_cpus), figure(one.num_gpus), percent(one.share), percent(one.recent_share), quotaWords(one.quota)])),
    owners.length ? h("p", { class: "quiet" }, "Of equal priority, the least of both shares together goes first.") : null,
    section("Paused", "Nobody is paused.", ["State", "Job", "Owner", "Priority", "Progress"],
      paused.map((job) => [stateBadge(job.state), link(job), job.owner, job.priority, progressWords(job)])),
  ];
}

function clusterFacts(cluster) {
  const left = (free, all) => (free === null && all === null ? "not known" : `${figure(free)} of ${figure(all)}`);
  const facts = [
    ["Ray", cluster.is_reachable ? "answers" : "does not answer"],
    ["Free CPUs", left(cluster.free_cpus, cluster.num_cpus)],
    ["Free GPUs", left(cluster.free_gpus, cluster.num_gpus)],
    ["Seen", when(cluster.seen_at)],
  ];
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function yielded({ num_preemptions: times }) {
  return times ? h("small", null, `made room for others ${times === 1 ? "once" : `${count(times)} times`}`) : null;
}

function percent(share) {
  if (share === null || share === undefined) return "–";
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

function quotaWords({ max_running_jobs: jobs, max_cpus: cpus, max_gpus: gpus }) {
  const limits = [[jobs, "jobs"], [cpus, "CPUs"], [gpus, "GPUs"]].filter(([limit]) => limit !== null && limit !== undefined);
  return limits.length ? limits.map(([limit, what]) => `${figure(limit)} ${what}`).join(", ") : "none";
}

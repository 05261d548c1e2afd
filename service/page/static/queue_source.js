// The queue as the list of jobs tells it: by priority, and of equals the oldest first, as docs/jobs.md says. A route
// that gives the order itself takes this file's place, and nothing else changes.

import { JobList } from "./job_list.js";

const MOST = 1000;

/** `{active, waiting, paused}`: jobs that hold a place, those that wait in their order, and those kept outside. */
export async function readQueue(signal) {
  const list = new JobList({ state: ["QUEUED", "PAUSED", "STARTING", "RUNNING", "PAUSING", "CANCELLING"] }, signal);
  await list.readUntil(MOST);
  const oldest = [...list.jobs.values()].reverse();
  const isHeld = (job) => job.state === "PAUSED" || (job.state === "QUEUED" && job.pause_requested);
  const place = (job) => job.waiting?.position ?? Infinity;
  return {
    active: oldest.filter((job) => !["QUEUED", "PAUSED"].includes(job.state)),
    waiting: oldest.filter((job) => job.state === "QUEUED" && !isHeld(job)).sort((one, other) => place(one) - place(other) || other.priority - one.priority),
    paused: oldest.filter(isHeld),
    isWhole: list.isWhole,
  };
}

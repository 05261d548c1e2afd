// The queue as the service plans it, and the paused jobs, which are outside it.

import { getJson } from "./api.js";
import { JobList } from "./job_list.js";

const MOST = 1000; // paused jobs

/** The answer of `GET /v1/queue`, with `paused`: jobs that somebody keeps outside. Raises Problem. */
export async function readQueue(signal) {
  const paused = new JobList({ state: ["PAUSED"] }, signal);
  const [queue] = await Promise.all([getJson("/v1/queue", {}, signal), paused.readUntil(MOST)]);
  return { ...queue, paused: [...paused.jobs.values()].reverse(), hasAllPaused: paused.isWhole };
}

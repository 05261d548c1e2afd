// The list of jobs as far as it has been read, kept up to date by events.

import { getJson } from "./api.js";

const PAGE = 100;
const REREAD = 200;

export class JobList {
  /** `query`: filters of `GET /v1/jobs`. */
  constructor(query, signal) {
    this.query = query;
    this.signal = signal;
    this.clear();
  }

  clear() {
    this.jobs = new Map(); // newest first, as the service lists them
    this.cursor = null;
    this.isWhole = false;
  }

  /** Read on until there are so many jobs, or all. Raises Problem. */
  async readUntil(wanted) {
    while (!this.isWhole && this.jobs.size < wanted) {
      const limit = wanted - this.jobs.size > PAGE ? REREAD : PAGE;
      const page = await getJson("/v1/jobs", { ...this.query, limit, cursor: this.cursor }, this.signal);
      for (const job of page.items) this.jobs.set(job.job_id, job);
      this.cursor = page.next_cursor ?? null;
      this.isWhole = this.cursor === null;
    }
  }

  /** Read again as much as was read; what is shown stays until then. Raises Problem. */
  async readAgain(atLeast) {
    const fresh = new JobList(this.query, this.signal);
    await fresh.readUntil(Math.max(atLeast, this.jobs.size));
    Object.assign(this, { jobs: fresh.jobs, cursor: fresh.cursor, isWhole: fresh.isWhole });
  }

  /**
   * Lay an event over the list. "changed": a job in it is another now; "reread": which jobs belong to it may have
   * changed; null: nothing here changes.
   */
  apply(event) {
    const job = this.jobs.get(event.job_id);
    const { type, payload } = event;
    if (type === "created") return "reread";
    if (type === "state") {
      const states = this.query.state ?? [];
      if (states.length && states.includes(payload.state) !== Boolean(job)) return "reread";
    }
    if (!job) return null;
    this.jobs.set(event.job_id, laidOver(job, type, payload));
    return "changed";
  }
}

/** A job as an event leaves it. */
export function laidOver(job, type, payload) {
  if (type === "state") {
    return { ...job, state: payload.state, attempt: payload.attempt, failure: payload.failure ?? job.failure };
  }
  if (type === "progress") return { ...job, progress: { ...job.progress, ...payload } };
  if (type === "wish") {
    const change = { cancel: { cancel_requested: true }, kill: { cancel_requested: true, kill_requested: true }, pause: { pause_requested: true }, resume: { pause_requested: false } };
    return { ...job, ...change[payload.wish] };
  }
  return job;
}

/** Whether all words of a search stand in what people know a job by. */
export function matches(job, text) {
  const labels = Object.entries(job.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  const known = [job.name, job.job_id, job.owner, job.project, ...labels].join("\n").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => known.includes(word));
}

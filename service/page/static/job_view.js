// One job: its head with state and buttons, and below it one of the panels.

import { getJson } from "./api.js";
import { ActionBar } from "./job_actions.js";
import { curvesPanel } from "./job_curves.js";
import { h, outward, put, say } from "./dom.js";
import { stateBadge, stateWords } from "./format.js";
import { JobHistory } from "./job_history.js";
import { laidOver } from "./job_list.js";
import { logsPanel } from "./job_logs.js";
import { overviewPanel } from "./job_overview.js";
import { resultPanel } from "./job_result.js";
import { showProgress } from "./job_row.js";
import { specPanel } from "./job_spec.js";
import { trialsPanel } from "./job_trials.js";
import { announce, loading, problemBox, showConnection } from "./notice.js";
import { follow } from "./stream.js";

const TABS = { overview: "Overview", curves: "Curves", trials: "Trials", logs: "Logs", result: "Result", spec: "Spec" };
const PANELS = { overview: overviewPanel, curves: curvesPanel, trials: trialsPanel, logs: logsPanel, result: resultPanel, spec: specPanel };
const READ_PAUSE = 300;

/** Show a job in `main` until `signal`; gives the function that turns to another panel. */
export function jobView(main, id, tab, signal) {
  const view = new JobView(main, id, signal);
  view.start(tab);
  return (wanted) => view.turn(wanted);
}

class JobView {
  constructor(main, id, signal) {
    Object.assign(this, { main, id, signal, job: null, panel: null, tab: null });
    this.history = new JobHistory(() => this.panel?.onHistory?.(this.history));
    this.title = h("h1", { tabindex: "-1" });
    this.below = h("p", { class: "quiet below" });
    this.state = h("div", { class: "standing" });
    this.bar = h("progress", { max: "1", "aria-label": "Progress of this job", hidden: true });
    this.words = h("span");
    this.actions = new ActionBar({ onJob: (job) => this.show(job), current: () => this.job });
    this.tabs = h("nav", { class: "tabs", "aria-label": "Of this job" });
    this.body = h("section", { class: "panel" });
    this.trouble = h("div");
    signal.addEventListener("abort", () => {
      clearTimeout(this.timer);
      this.leave?.abort();
    });
  }

  async start(tab) {
    put(this.main, h("h1", { tabindex: "-1" }, "Job"), loading("the job"));
    try {
      this.job = await getJson(`/v1/jobs/${encodeURIComponent(this.id)}`, {}, this.signal);
    } catch (error) {
      if (error.name !== "AbortError") put(this.main, h("h1", { tabindex: "-1" }, "Job"), problemBox(error, { onRetry: () => this.start(tab) }));
      return;
    }
    const isFocused = this.main.contains(document.activeElement);
    put(this.main, this.title, this.below, this.state, this.actions.element, this.trouble, this.tabs, this.body);
    this.show(this.job);
    this.turn(tab);
    if (isFocused) this.title.focus();
    this.follow();
  }

  async follow() {
    const onEvent = (event) => this.take(event);
    try {
      await follow(`/v1/jobs/${encodeURIComponent(this.id)}/events`, { query: { after: 0 }, signal: this.signal, onEvent, onStatus: showConnection });
      if (!this.signal.aborted) showConnection("none");
    } catch (problem) {
      showConnection("offline", problem);
      put(this.trouble, problemBox(problem));
    }
  }

  take(event) {
    if (event.name === "open") return undefined;
    if (event.name === "reset") return this.history.miss();
    if (event.name === "end") return this.readSoon();
    const told = JSON.parse(event.data);
    this.history.add(told);
    if (told.type === "metrics") return undefined;
    if (told.type !== "progress") return this.readSoon(); // what changed besides, the job itself says
    const known = this.job.progress;
    if (known && told.at <= known.heartbeat_at) return undefined; // of the past: the stream begins at the beginning
    return this.show(laidOver(this.job, told.type, told.payload));
  }

  readSoon() {
    this.timer ??= setTimeout(async () => {
      this.timer = null;
      try {
        this.show(await getJson(`/v1/jobs/${encodeURIComponent(this.id)}`, {}, this.signal));
        put(this.trouble);
      } catch (error) {
        if (error.name !== "AbortError") put(this.trouble, problemBox(error, { onRetry: () => this.readSoon() }));
      }
    }, READ_PAUSE);
  }

  /** Take a job as it is now; one without a spec keeps the spec that was read. */
  show(job) {
    const before = this.shown;
    this.job = { ...job, spec: job.spec ?? this.job.spec, spec_sha256: job.spec_sha256 ?? this.job.spec_sha256 };
    this.shown = this.job;
    if (job.name !== before?.name) {
      say(this.title, job.name);
      document.title = `${job.name} · ELECTRA`;
    }
    if (before && before.state !== job.state) announce(`${job.name} is ${job.state}`);
    put(this.below, this.origin());
    const asked = stateWords(job);
    put(this.state, stateBadge(job.state), asked ? h("em", null, asked) : null, this.bar, this.words);
    showProgress(job, this.bar, this.words);
    if (job.state === "FAILED") put(this.words);
    this.actions.update(this.job);
    this.panel?.onJob?.(this.job);
  }

  origin() {
    const { job } = this;
    const of = (id, words) => (id ? [` · ${words} `, h("a", { href: `#/jobs/${id}` }, id)] : null);
    return [`${job.kind} · ${job.project} · ${job.owner} · `, h("span", { class: "id" }, job.job_id),
      of(job.retry_of, "retry of"), of(job.clone_of, "clone of"), job.is_archived ? " · archived" : null,
      job.links?.mlflow ? [" · ", outward(job.links.mlflow, "MLflow")] : null,
      job.links?.ray ? [" · ", outward(job.links.ray, "Ray dashboard")] : null];
  }

  turn(wanted) {
    const tab = PANELS[wanted] ? wanted : "overview";
    if (tab === this.tab && this.panel) return;
    this.tab = tab;
    this.leave?.abort();
    this.leave = new AbortController();
    const names = Object.keys(TABS).filter((name) => name !== (this.job?.kind === "search" ? "curves" : "trials"));
    const isFocused = this.tabs.contains(document.activeElement);
    put(this.tabs, names.map((name) =>
      h("a", { href: `#/jobs/${this.id}/${name}`, "aria-current": name === tab ? "page" : null }, TABS[name])));
    if (isFocused) this.tabs.querySelector("[aria-current]")?.focus();
    this.body.setAttribute("aria-label", TABS[tab]);
    if (!this.job) return;
    this.panel = PANELS[tab](this.body, this.job, this.history, this.leave.signal);
    this.panel?.onHistory?.(this.history);
  }
}


// The list of jobs: filters, pages, and a line for each job that moves as the job does.

import { h, put, say } from "./dom.js";
import { STATES, count } from "./format.js";
import { JobList, matches } from "./job_list.js";
import { jobTable } from "./job_row.js";
import { announce, empty, loading, problemBox, showConnection } from "./notice.js";
import { follow } from "./stream.js";

const ROWS = 50;
const SEARCHED = 5000; // jobs that a search by text reads at most
const REREAD_PAUSE = 1000;
const OPENING_PAUSE = 2000;
const GROUPS = {
  active: { words: "Active", states: ["STARTING", "RUNNING", "PAUSING", "CANCELLING"] },
  waiting: { words: "Waiting", states: ["QUEUED", "PAUSED"] },
  over: { words: "Over", states: ["SUCCEEDED", "FAILED", "CANCELLED"] },
};
const KINDS = ["pretrain", "finetune", "evaluate", "search"];

/** Show the list in `main` until `signal`. `query`: URLSearchParams of the address; `go(query)` changes it. */
export function jobsView(main, query, go, signal) {
  const wanted = { q: query.get("q") ?? "", state: query.get("state") ?? "", kind: query.get("kind") ?? "", archived: query.get("archived") ?? "" };
  const state = GROUPS[wanted.state]?.states ?? (STATES.includes(wanted.state) ? [wanted.state] : []);
  const kind = KINDS.includes(wanted.kind) ? wanted.kind : null;
  const list = new JobList({ state, kind, archived: wanted.archived ? "true" : null }, signal);
  const view = new JobsView(main, list, wanted, go, Math.max(1, Number(query.get("page")) || 1));
  view.start(signal);
}

class JobsView {
  constructor(main, list, wanted, go, page) {
    Object.assign(this, { list, wanted, go, page, rereadTimer: null, drawTimer: null });
    this.table = h("div", { "aria-busy": "true" }, loading("jobs"));
    this.summary = h("p", { class: "quiet", id: "summary", role: "status" });
    this.pager = h("nav", { class: "pager", "aria-label": "Pages of the list" });
    this.trouble = h("div");
    put(main, h("h1", { tabindex: "-1" }, "Jobs"), this.filters(), this.trouble, this.summary, this.table, this.pager);
  }

  filters() {
    const option = (value, words, now) => h("option", { value, selected: value === now }, words);
    const search = h("input", { type: "search", name: "q", value: this.wanted.q, placeholder: "name, id, owner or label", autocomplete: "off" });
    const states = h("select", { name: "state" }, option("", "any state", this.wanted.state),
      Object.entries(GROUPS).map(([name, group]) => option(name, group.words, this.wanted.state)),
      STATES.map((name) => option(name, name, this.wanted.state)));
    const kinds = h("select", { name: "kind" }, option("", "any kind", this.wanted.kind), KINDS.map((name) => option(name, name, this.wanted.kind)));
    const archived = h("input", { type: "checkbox", name: "archived", checked: Boolean(this.wanted.archived) });
    const changed = () => this.go({ q: search.value.trim(), state: states.value, kind: kinds.value, archived: archived.checked ? "1" : "" });
    let timer = null;
    search.addEventListener("input", () => {
      // Text is looked for in what has been read: the list itself stays.
      clearTimeout(timer);
      timer = setTimeout(() => this.search(search.value.trim()), 200);
    });
    return h("form", { class: "filters", role: "search", onsubmit: (event) => (event.preventDefault(), changed()) },
      h("label", null, "Find ", search), h("label", null, "State ", states), h("label", null, "Kind ", kinds),
      h("label", { class: "check" }, archived, " archived"),
      listening([states, kinds, archived], changed));
  }

  async start(signal) {
    this.signal = signal;
    signal.addEventListener("abort", () => (clearTimeout(this.rereadTimer), clearTimeout(this.drawTimer)));
    // Events first, then the list: what happens in between is told. Without events the list has to do.
    const opened = new Promise((resolve) => (this.onOpened = resolve));
    this.follow(signal);
    await Promise.race([opened, new Promise((resolve) => setTimeout(resolve, OPENING_PAUSE))]);
    if (!signal.aborted) await this.read();
  }

  async follow(signal) {
    try {
      const onStatus = (status, problem) => {
        showConnection(status, problem);
        if (status === "offline") this.onOpened();
      };
      await follow("/v1/events", { signal, onStatus, onEvent: (event) => this.take(event) });
    } catch (problem) {
      showConnection("offline", problem);
      this.onOpened();
    }
  }

  take(event) {
    if (event.name === "reset") return this.rereadSoon();
    if (event.name === "open") {
      if (this.hasRead) this.rereadSoon(); // edits are no events: after a break they may have been missed
      return this.onOpened();
    }
    const told = JSON.parse(event.data);
    const effect = this.list.apply(told);
    if (effect === "reread") this.rereadSoon();
    if (effect !== "changed") return undefined;
    if (told.type === "state") announce(`${this.list.jobs.get(told.job_id).name} is ${told.payload.state}`);
    return this.drawSoon();
  }

  rereadSoon() {
    this.rereadTimer ??= setTimeout(() => {
      this.rereadTimer = null;
      this.read(true);
    }, REREAD_PAUSE * Math.max(1, this.list.jobs.size / 200));
  }

  drawSoon() {
    this.drawTimer ??= setTimeout(() => {
      this.drawTimer = null;
      this.draw();
    }, 100);
  }

  search(text) {
    if (text === this.wanted.q) return;
    this.wanted.q = text;
    this.page = 1;
    this.go({ ...this.wanted, page: "" }, { isQuiet: true });
    this.read();
  }

  turn(page) {
    this.page = page;
    this.go({ ...this.wanted, page: page > 1 ? String(page) : "" }, { isQuiet: true });
    this.read();
  }

  async read(isAgain = false) {
    this.table.setAttribute("aria-busy", "true");
    this.hasRead = true;
    const wanted = this.wanted.q ? SEARCHED : this.page * ROWS + 1;
    try {
      await (isAgain ? this.list.readAgain(wanted) : this.list.readUntil(wanted));
      put(this.trouble);
      this.draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!this.list.jobs.size) put(this.table);
      put(this.trouble, problemBox(error, { onRetry: () => this.read(isAgain) }));
    }
    this.table.setAttribute("aria-busy", "false");
  }

  draw() {
    const all = [...this.list.jobs.values()];
    const found = this.wanted.q ? all.filter((job) => matches(job, this.wanted.q)) : all;
    const last = Math.max(1, Math.ceil(found.length / ROWS));
    this.page = Math.min(this.page, last);
    const from = (this.page - 1) * ROWS;
    const rows = found.slice(from, from + ROWS);
    const total = `${count(found.length)}${this.list.isWhole ? "" : "+"}`;
    say(this.summary, found.length ? `${count(from + 1)} to ${count(from + rows.length)} of ${total} jobs, newest first` : "");
    if (!rows.length) put(this.table, this.nothing());
    else if (this.rows) this.rows.update(rows);
    else put(this.table, (this.rows = jobTable(rows)).element);
    if (rows.length && !this.rows.element.isConnected) put(this.table, this.rows.element);
    const button = (words, page, isOn) => h("button", { type: "button", disabled: !isOn, onclick: () => this.turn(page) }, words);
    const held = this.pager.contains(document.activeElement) ? document.activeElement.textContent : null;
    put(this.pager, last > 1 || this.page > 1 ? [
      button("Newer", this.page - 1, this.page > 1), h("span", null, `Page ${this.page}`), button("Older", this.page + 1, this.page < last)] : null);
    if (held) [...this.pager.querySelectorAll("button:enabled")].sort((one) => (one.textContent === held ? -1 : 1))[0]?.focus();
  }

  nothing() {
    const isFiltered = Object.values(this.wanted).some(Boolean);
    if (isFiltered) return empty("No job fits. ", h("a", { href: "#/jobs" }, "Show all jobs"));
    return empty("No jobs yet. ", h("a", { href: "#/submit" }, "Submit the first"), " or run ", h("code", null, "electra submit tiny"), ".");
  }
}

function listening(elements, changed) {
  for (const element of elements) element.addEventListener("change", changed);
  return null;
}

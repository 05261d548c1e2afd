// Logs: what was printed, or what the processes logged; searched, or followed as it comes.

import { getJson, getText } from "./api.js";
import { h, put, say } from "./dom.js";
import { OVER } from "./format.js";
import { empty, loading, problemBox } from "./notice.js";
import { follow } from "./stream.js";

const PRINTED = "driver-output";
const TAIL = 1000;
const PAGE = 500;
const MOST_LINES = 3000; // on the page at a time; older ones leave it
const LEVELS = ["debug", "info", "warning", "error", "critical"];

export function logsPanel(body, job, _history, signal) {
  new Logs(body, job, signal).start();
  return null;
}

class Logs {
  constructor(body, job, signal) {
    Object.assign(this, { job, signal, reading: new AbortController() });
    const option = (value, words = value, isChosen = false) => h("option", { value, selected: isChosen }, words);
    this.source = h("select", { name: "source" }, option(PRINTED, "what was printed"), option("*", "all processes"));
    this.level = h("select", { name: "level" }, LEVELS.map((name) => option(name, name, name === "info")));
    this.text = h("input", { type: "search", name: "contains", maxlength: 200, autocomplete: "off", placeholder: "text in the line" });
    const attempts = Array.from({ length: job.attempt }, (_, place) => job.attempt - place);
    this.attempt = h("select", { name: "attempt" }, attempts.map((number) => option(number)));
    this.follows = h("input", { type: "checkbox", name: "follow", checked: !OVER.has(job.state) && job.attempt > 0 });
    this.lines = h("div", { class: "log", role: "log", tabindex: "0", "aria-label": "Log lines", "aria-live": "off" });
    this.status = h("p", { class: "quiet", role: "status" });
    this.more = h("div");
    const form = h("form", { class: "filters", onsubmit: (event) => (event.preventDefault(), this.read()) },
      h("label", null, "Of ", this.source), h("label", null, "Level ", this.level), h("label", null, "Contains ", this.text),
      h("label", null, "Attempt ", this.attempt), h("label", { class: "check" }, this.follows, " follow"), h("button", { type: "submit" }, "Read"));
    put(body, h("h2", null, "Logs"), form, this.status, this.lines, this.more);
    for (const field of [this.source, this.level, this.attempt, this.follows]) field.addEventListener("change", () => this.read());
    signal.addEventListener("abort", () => this.reading.abort());
  }

  async start() {
    if (!this.job.attempt) return put(this.lines, empty("The job has not started: there is no log yet."));
    this.read();
    try {
      const { items } = await getJson(`/v1/jobs/${this.job.job_id}/logs/sources`, {}, this.signal);
      this.source.append(...items.filter((one) => one.source !== PRINTED).map((one) => h("option", { value: one.source }, one.source)));
    } catch {
      // The lines themselves say what is wrong with the storage.
    }
    return undefined;
  }

  get isPrinted() {
    return this.source.value === PRINTED;
  }

  async read() {
    if (!this.job.attempt) return;
    this.reading.abort();
    this.reading = new AbortController();
    const { signal } = this.reading;
    this.level.disabled = this.isPrinted; // of what was printed no level is known
    this.attempt.disabled = this.follows.checked && this.job.attempt < 2;
    put(this.lines, loading("lines"));
    put(this.more);
    say(this.status, "");
    this.waiting = [];
    this.isFresh = true;
    try {
      if (this.follows.checked) await this.follow(signal);
      else if (this.isPrinted) await this.readPrinted(signal);
      else await this.readPage(signal, null);
    } catch (error) {
      if (!signal.aborted) put(this.lines, problemBox(error, { onRetry: () => this.read() }));
    }
  }

  async readPrinted(signal) {
    const text = await getText(this.path, { attempt: this.attempt.value, tail: TAIL }, signal);
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    const found = lines.filter((line) => this.fits(line));
    this.add(found.map((line) => h("div", null, line)));
    this.flush();
    say(this.status, `${found.length} lines${lines.length >= TAIL ? ` of the last ${TAIL}` : ""}`);
  }

  async readPage(signal, cursor) {
    const page = await getJson(this.path, { ...this.wish, attempt: this.attempt.value, format: "json", limit: PAGE, cursor }, signal);
    this.add(page.items.map(recordLine));
    this.flush();
    const more = page.truncated ? "The search stopped early: there was much to read." : "";
    say(this.status, page.next_cursor ? more || "There are more lines." : "");
    const next = () => this.readPage(signal, page.next_cursor).catch((error) => !signal.aborted && put(this.more, problemBox(error)));
    put(this.more, page.next_cursor ? h("button", { type: "button", onclick: next }, "Read on") : null);
  }

  async follow(signal) {
    const query = this.isPrinted ? { attempt: this.attempt.value } : { ...this.wish, attempt: this.attempt.value, format: "json" };
    const words = { live: "Following", connecting: "Connecting …", offline: "Offline: trying again" };
    const onStatus = (status) => say(this.status, words[status]);
    const onEvent = (event) => {
      if (event.name === "end") return;
      if (!this.isPrinted) this.addSoon(recordLine(JSON.parse(event.data)));
      else if (this.fits(event.data)) this.addSoon(h("div", null, event.data));
    };
    await follow(this.path, { query: { ...query, follow: "true" }, signal, onEvent, onStatus });
    if (signal.aborted) return;
    this.flush();
    say(this.status, "The job is over: this is the end of the log.");
  }

  get path() {
    return `/v1/jobs/${encodeURIComponent(this.job.job_id)}/logs`;
  }

  get wish() {
    return { source: this.source.value, level: this.level.value, contains: this.text.value.trim() };
  }

  fits(line) {
    return line.toLowerCase().includes(this.text.value.trim().toLowerCase());
  }

  add(lines) {
    this.waiting.push(...lines);
    if (this.waiting.length > MOST_LINES) this.waiting.splice(0, this.waiting.length - MOST_LINES);
  }

  addSoon(line) {
    this.add([line]);
    this.timer ??= setTimeout(() => this.flush(), 150); // many lines come at once: one change of the page for them
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = null;
    const box = this.lines;
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (this.isFresh) put(box);
    const wasFresh = this.isFresh;
    this.isFresh = false;
    box.append(...this.waiting.splice(0));
    while (box.childElementCount > MOST_LINES) box.firstElementChild.remove();
    if (!box.childElementCount) put(box, empty("No lines fit."));
    else if (isAtEnd || (wasFresh && (this.follows.checked || this.isPrinted))) box.scrollTop = box.scrollHeight;
  }
}

function recordLine({ time, level, source, logger, message, fields }) {
  const more = Object.entries(fields ?? {}).map(([key, value]) => ` ${key}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return h("div", { class: `log-${LEVELS.includes(level) ? level : "info"}` },
    h("time", { datetime: time, title: time }, time.slice(11, 23)), ` ${level.toUpperCase()} `, h("b", null, source), ` ${logger} `, message, more);
}

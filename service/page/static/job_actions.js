// The buttons of a job. What destroys or makes something is asked again in place; refusals are shown as they were said.

import { newRequestName, sendJson } from "./api.js";
import { h, put } from "./dom.js";
import { OVER } from "./format.js";
import { editForm } from "./job_edit.js";
import { announce, problemBox } from "./notice.js";

const isOver = (job) => OVER.has(job.state);
const isPaused = (job) => job.pause_requested || job.state === "PAUSED";
const ACTIONS = [
  { name: "pause", words: "Pause", fits: (job) => !isOver(job) && !job.cancel_requested && !isPaused(job) },
  { name: "resume", words: "Resume", fits: (job) => !isOver(job) && !job.cancel_requested && isPaused(job) },
  { name: "cancel", words: "Cancel", fits: (job) => !isOver(job) && !job.cancel_requested, isGrave: true,
    question: "Cancel this job? It saves a checkpoint and stops. It cannot be resumed, only tried again as a new job." },
  { name: "kill", words: "Kill", fits: (job) => !isOver(job) && !job.kill_requested, isGrave: true,
    question: "Kill this job? It ends at once, and what it learned since its last checkpoint is lost." },
  { name: "retry", words: "Retry", fits: (job) => job.state === "FAILED" || job.state === "CANCELLED", makes: true,
    question: "Try again as a new job, which goes on with what this one left as far as the spec still fits." },
  { name: "clone", words: "Clone", fits: () => true, makes: true, question: "A new job from this one's spec, from the start." },
  { name: "edit", words: "Edit", fits: () => true },
  { name: "archive", words: "Archive", fits: (job) => isOver(job) && !job.is_archived },
  { name: "unarchive", words: "Unarchive", fits: (job) => job.is_archived },
];

/** The buttons and what opens below them. `onJob(job)`: an answer; `current()`: the job as it is shown. */
export class ActionBar {
  constructor({ onJob, current }) {
    Object.assign(this, { onJob, current, shown: "" });
    this.buttons = h("div", { class: "actions", role: "group", "aria-label": "Actions" });
    this.below = h("div");
    this.element = h("div", null, this.buttons, this.below);
  }

  /** Show the buttons that fit; those that stay keep the focus. */
  update(job) {
    const fitting = ACTIONS.filter((action) => action.fits(job));
    const names = fitting.map((action) => action.name).join();
    if (names === this.shown) return;
    this.shown = names;
    const held = this.buttons.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    put(this.buttons, fitting.map((action) =>
      h("button", { type: "button", "data-action": action.name, class: action.isGrave ? "grave" : "", onclick: () => this.press(action) }, action.words)));
    if (held) (this.button(held) ?? this.buttons.querySelector("button"))?.focus();
    if (this.open && !fitting.includes(this.open)) this.close();
  }

  button(name) {
    return this.buttons.querySelector(`[data-action="${name}"]`);
  }

  press(action) {
    if (action.name === "edit") {
      const save = (changes) => this.send(action, "PATCH", `/v1/jobs/${this.current().job_id}`, changes);
      return this.ask(action, editForm(this.current(), save, () => this.close(true)));
    }
    if (!action.question) return this.send(action, "POST", this.path(action));
    return this.ask(action, action.makes ? this.againForm(action) : this.question(action));
  }

  ask(action, content) {
    this.open = action;
    const onkeydown = (event) => event.key === "Escape" && this.close(true);
    put(this.below, h("div", { class: "ask", role: "group", "aria-label": action.words, onkeydown }, content));
    // Of a question, what does no harm: Enter pressed twice must not end a job.
    (this.below.querySelector("[data-safe]") ?? this.below.querySelector("input, textarea, button"))?.focus();
  }

  question(action) {
    const sure = () => this.send(action, "POST", this.path(action));
    return [h("p", null, action.question), h("div", { class: "actions" },
      h("button", { type: "button", class: "grave", "data-sure": action.name, onclick: sure }, `Yes, ${action.name} it`),
      h("button", { type: "button", "data-safe": true, onclick: () => this.close(true) }, "Leave it"))];
  }

  againForm(action) {
    const overrides = h("textarea", { rows: 3, id: "overrides", spellcheck: "false", placeholder: "training.seed=2" });
    const names = new Map(); // by what is asked for: the same, sent twice, makes one job
    const submit = (event) => {
      event.preventDefault();
      const lines = overrides.value.split("\n").map((line) => line.trim()).filter(Boolean);
      const asked = lines.join("\n");
      if (!names.has(asked)) names.set(asked, newRequestName());
      this.send(action, "POST", this.path(action), { overrides: lines }, { "Idempotency-Key": names.get(asked) });
    };
    return h("form", { onsubmit: submit }, h("p", null, action.question),
      h("label", { for: "overrides" }, "Changes to the spec, a line each, or none"), overrides,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "primary", "data-sure": action.name }, `${action.words} as a new job`),
        h("button", { type: "button", onclick: () => this.close(true) }, "Leave it")));
  }

  path(action) {
    return `/v1/jobs/${encodeURIComponent(this.current().job_id)}/${action.name}`;
  }

  async send(action, method, path, body, headers) {
    if (this.isBusy) return;
    this.isBusy = true;
    this.element.setAttribute("aria-busy", "true");
    try {
      const job = await sendJson(method, path, body, headers);
      if (action.makes) {
        announce(`${job.name} was made`);
        location.hash = `#/jobs/${job.job_id}`;
        return;
      }
      announce(`${action.words}: done`);
      this.close(true);
      this.onJob(job);
    } catch (problem) {
      this.fail(action, problem);
    } finally {
      this.isBusy = false;
      this.element.removeAttribute("aria-busy");
    }
  }

  fail(action, problem) {
    const box = problemBox(problem);
    this.below.querySelector(".problem")?.remove();
    if (this.open) this.below.firstChild.append(box);
    else put(this.below, h("div", { class: "ask" }, box, h("button", { type: "button", onclick: () => this.close(true) }, "Close")));
    this.open ??= action;
  }

  close(isFocused = false) {
    const name = this.open?.name;
    this.open = null;
    put(this.below);
    if (isFocused && name) (this.button(name) ?? this.buttons.querySelector("button"))?.focus();
  }
}

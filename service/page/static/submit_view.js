// A new job: a text, what the service says of it, and what it would cost, before anything starts.

import { getJson, newRequestName, sendJson } from "./api.js";
import { h, put, say } from "./dom.js";
import { readLabels } from "./job_edit.js";
import { announce, faultList, fieldOf, problemBox } from "./notice.js";
import { planBox } from "./plan_box.js";
import { TextProblem, fieldOfFault, lineOf, readSpec } from "./spec_text.js";
import { keepDraft, readDraft } from "./submit_draft.js";
import { yamlText } from "./yaml_text.js";

/** Show the form in `main` until `signal`. */
export function submitView(main, _query, signal) {
  new SubmitView(main, signal).offerPresets();
}

class SubmitView {
  constructor(main, signal) {
    this.signal = signal;
    this.text = h("textarea", { id: "spec", rows: 22, spellcheck: "false", autocapitalize: "off", "aria-describedby": "spec-help",
      placeholder: "kind: pretrain\npreset: tiny\nname: my-first" });
    this.text.value = readDraft();
    this.preset = h("select", { id: "preset" });
    this.summary = h("p", { class: "quiet" });
    this.project = h("select", { id: "project" });
    this.projectField = h("div", { hidden: true }, h("label", { for: "project" }, "Project"), this.project);
    this.priority = h("input", { id: "priority", type: "number", min: -100, max: 100, step: 1, value: "0", required: true });
    this.labels = h("input", { id: "labels", autocomplete: "off", spellcheck: "false", placeholder: "team=nlp, run=baseline" });
    this.answer = h("section", { class: "answer", "aria-label": "Answer", tabindex: "-1" });
    this.file = h("input", { type: "file", id: "file", accept: ".yaml,.yml,.json", onchange: () => this.open() });
    const planned = (event) => (event.preventDefault(), this.plan());
    put(main, h("h1", { tabindex: "-1" }, "Submit a job"),
      h("div", { class: "submit" },
        h("form", { class: "stack", onsubmit: planned },
          h("div", { class: "filters" },
            h("label", null, "Preset ", this.preset),
            h("button", { type: "button", onclick: () => this.use(false) }, "Use"),
            h("button", { type: "button", onclick: () => this.use(true) }, "Write it out"),
            h("label", null, "File ", this.file)),
          this.summary,
          h("label", { for: "spec" }, "Spec"), this.text,
          h("p", { class: "quiet", id: "spec-help" }, "YAML or JSON. What is left out is the preset's or the default. Files are read where the service runs."),
          this.projectField,
          h("label", { for: "priority" }, "Priority, -100 to 100; the highest goes first"), this.priority,
          h("label", { for: "labels" }, "Labels"), this.labels,
          h("div", { class: "actions" }, h("button", { type: "submit", class: "primary", id: "plan" }, "Check and price"))),
        this.answer));
    this.text.addEventListener("input", () => this.changed());
    for (const field of [this.priority, this.labels, this.project]) field.addEventListener("input", () => this.changed());
  }

  async offerPresets() {
    this.preset.addEventListener("change", () => this.tell());
    try {
      const [presets, projects] = await Promise.all([getJson("/v1/presets", {}, this.signal), getJson("/v1/projects", {}, this.signal)]);
      this.presets = presets.items;
      put(this.preset, this.presets.map((one) => h("option", null, one.name)));
      this.tell();
      const own = projects.items.filter((one) => one.permissions.includes("jobs:write"));
      put(this.project, h("option", { value: "" }, "the usual one"), own.map((one) => h("option", { value: one.name }, one.name)));
      this.projectField.hidden = own.length < 2;
    } catch (error) {
      if (error.name !== "AbortError") put(this.answer, problemBox(error));
    }
  }

  chosen() {
    return this.presets?.find((one) => one.name === this.preset.value);
  }

  tell() {
    say(this.summary, this.chosen()?.summary ?? "");
  }

  use(isWhole) {
    const preset = this.chosen();
    if (!preset) return;
    this.text.value = isWhole ? yamlText(preset.spec) : `kind: ${preset.spec.kind}\npreset: ${preset.name}\nname: ${preset.spec.name}\n`;
    this.changed();
    this.text.focus();
  }

  async open() {
    const [file] = this.file.files;
    if (!file) return;
    this.text.value = await file.text();
    this.changed();
    this.text.focus();
  }

  changed() {
    keepDraft(this.text.value);
    this.text.removeAttribute("aria-invalid");
    // What was said is of another text now, and so is the name of the request.
    put(this.answer);
    this.body = null;
  }

  async plan() {
    if (this.isBusy) return;
    this.isBusy = true;
    put(this.answer, h("p", { class: "quiet", role: "status" }, "Checking …"));
    try {
      const { spec, overrides } = readSpec(this.text.value);
      this.overrides = overrides;
      const body = { spec, overrides, priority: Number(this.priority.value), labels: readLabels(this.labels.value) };
      if (this.project.value) body.project = this.project.value;
      const plan = await sendJson("POST", "/v1/jobs:plan", body);
      this.body = body;
      this.requestName = newRequestName(); // of this plan: sent twice, it makes one job
      this.text.removeAttribute("aria-invalid");
      const submit = h("button", { type: "button", class: "primary", id: "submit", onclick: () => this.submit() }, "Submit this job");
      put(this.answer, h("h2", null, "It fits"), planBox(plan), h("div", { class: "actions" }, submit));
      announce("The spec is right. It can be submitted.");
      submit.focus();
    } catch (error) {
      this.refused(error);
    } finally {
      this.isBusy = false;
    }
  }

  async submit() {
    if (this.isBusy || !this.body) return;
    this.isBusy = true;
    try {
      const job = await sendJson("POST", "/v1/jobs", this.body, { "Idempotency-Key": this.requestName });
      keepDraft("");
      announce(`${job.name} was submitted`);
      location.hash = `#/jobs/${job.job_id}`;
    } catch (error) {
      this.refused(error);
    } finally {
      this.isBusy = false;
    }
  }

  refused(error) {
    this.text.setAttribute("aria-invalid", "true");
    if (error instanceof TextProblem) {
      const go = error.lineNumber ? h("button", { type: "button", onclick: () => this.goTo(error.lineNumber) }, `Go to line ${error.lineNumber}`) : null;
      put(this.answer, h("div", { class: "problem", role: "alert" }, h("strong", null, "This cannot be read"), h("p", null, error.message), go));
    } else if (error.errors?.length) {
      const faults = error.errors.map((fault) => ({ ...fault, pointer: fieldOfFault(fault.pointer, this.overrides) }));
      const beside = (fault) => {
        const line = lineOf(this.text.value, fieldOf(fault.pointer));
        return line ? [" ", h("button", { type: "button", onclick: () => this.goTo(line) }, `Line ${line}`)] : null;
      };
      put(this.answer, h("div", { class: "problem", role: "alert" }, h("strong", null, error.title), faultList(faults, beside)));
    } else put(this.answer, problemBox(error));
    this.answer.focus();
  }

  goTo(number) {
    const lines = this.text.value.split("\n");
    const from = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
    this.text.focus();
    this.text.setSelectionRange(from, from + lines[number - 1].length);
    const height = this.text.scrollHeight / lines.length;
    this.text.scrollTop = Math.max(0, (number - 4) * height);
  }
}

// Priority, labels and notes of a job.

import { h } from "./dom.js";

/** A form; `save(changes)` takes the body of a PATCH with what is another than it was. */
export function editForm(job, save, leave) {
  const before = { priority: String(job.priority), labels: labelsText(job.labels), notes: job.notes };
  const priority = h("input", { type: "number", id: "priority", min: -100, max: 100, step: 1, required: true, value: before.priority });
  const labels = h("input", { id: "labels", value: before.labels, placeholder: "team=nlp, run=baseline", autocomplete: "off", spellcheck: "false" });
  const notes = h("textarea", { id: "notes", rows: 3, maxlength: 4000 }, before.notes);
  const submit = (event) => {
    event.preventDefault();
    const changes = {};
    if (priority.value !== before.priority) changes.priority = Number(priority.value);
    if (labels.value !== before.labels) changes.labels = readLabels(labels.value);
    if (notes.value !== before.notes) changes.notes = notes.value;
    save(changes);
  };
  return h("form", { class: "stack", onsubmit: submit },
    h("label", { for: "priority" }, "Priority, -100 to 100; the highest goes first"), priority,
    h("label", { for: "labels" }, "Labels"), labels,
    h("label", { for: "notes" }, "Notes"), notes,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Save"), h("button", { type: "button", onclick: leave }, "Leave it")));
}

export function labelsText(labels) {
  return Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ");
}

/** `a=b, c=d` as an object; the service says what is wrong with a name or a value. */
export function readLabels(text) {
  const parts = text.split(",").map((part) => part.trim()).filter(Boolean);
  return Object.fromEntries(parts.map((part) => (part.includes("=") ? [part.slice(0, part.indexOf("=")).trim(), part.slice(part.indexOf("=") + 1).trim()] : [part, ""])));
}

// The resolved spec: every default filled in, as YAML or JSON, to copy or to start another job from.

import { h, put, say } from "./dom.js";
import { announce } from "./notice.js";
import { scrolling } from "./job_overview.js";
import { keepDraft } from "./submit_draft.js";
import { yamlText } from "./yaml_text.js";

export function specPanel(body, job) {
  const text = h("pre", { class: "spec" });
  const form = h("select", { "aria-label": "Format", onchange: () => draw() }, h("option", null, "YAML"), h("option", null, "JSON"));
  const written = () => (form.value === "JSON" ? `${JSON.stringify(job.spec, null, 2)}\n` : yamlText(job.spec));
  const draw = () => say(text, written());
  const done = h("span", { class: "quiet", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(written());
      say(done, "Copied.");
    } catch {
      // Without HTTPS browsers keep the clipboard closed: the text is selected instead.
      getSelection().selectAllChildren(text);
      say(done, "Selected: copy it by keyboard.");
    }
  };
  const start = () => {
    keepDraft(written());
    announce("The spec is in the form");
    location.hash = "#/submit";
  };
  put(body, h("h2", null, "Spec"),
    h("div", { class: "actions" }, form, h("button", { type: "button", onclick: copy }, "Copy"),
      h("button", { type: "button", onclick: start }, "Change and submit"), done),
    h("p", { class: "quiet" }, "SHA-256 ", h("code", { class: "id" }, job.spec_sha256)), scrolling("Spec", text));
  draw();
  return null;
}

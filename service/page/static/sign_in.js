// A key, asked for where the service wants one.

import { setKey } from "./api.js";
import { h, put } from "./dom.js";
import { problemBox } from "./notice.js";

/** Ask for a key; `onKey` is called when there is one. `problem`: why the one before was refused. */
export function signInView(main, problem, onKey) {
  const field = h("input", { type: "password", id: "key", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "key-help" });
  const submit = (event) => {
    event.preventDefault();
    // What a header can carry: anything else would fail without an answer.
    const key = field.value.replace(/[^\x21-\x7e]/g, "");
    if (!key) return;
    setKey(key);
    onKey();
  };
  put(main, h("h1", { tabindex: "-1" }, "Sign in"), problem ? problemBox(problem) : null,
    h("form", { class: "stack", onsubmit: submit },
      h("label", { for: "key" }, "API key, or a token of your identity provider"), field,
      h("p", { class: "quiet", id: "key-help" }, "Kept in this tab until it is closed, and sent to this service alone. ",
        "An administrator makes keys with ", h("code", null, "electra keys create"), "."),
      h("button", { type: "submit", class: "primary" }, "Sign in")));
  document.title = "Sign in · ELECTRA";
  field.focus();
}

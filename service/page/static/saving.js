// Files of the service for the reader's disk. A plain link would carry no key, so they are fetched and handed over.

import { h, put } from "./dom.js";
import { send } from "./api.js";
import { bytes } from "./format.js";
import { problemBox } from "./notice.js";

/** Bytes that a tab is asked to hold in memory at most. */
export const MODEST_BYTES = 256e6;

/** A button that fetches `path` and saves it as `name`; `instead`: what is said where it is too large, or null. */
export function saveButton(words, { path, query, name, accept, signal, instead = null }) {
  const said = h("div", { role: "status" });
  const save = async () => {
    button.disabled = true;
    put(said, h("p", { class: "quiet" }, "Fetching …"));
    // What is not read is let go: the headers tell the size before the body comes.
    const leave = new AbortController();
    const stop = () => leave.abort();
    signal.addEventListener("abort", stop);
    try {
      const answer = await send("GET", path, { query, accept, signal: leave.signal });
      const size = Number(answer.headers.get("Content-Length") ?? 0);
      if (size > MODEST_BYTES) {
        leave.abort();
        put(said, h("p", null, `${bytes(size)} are more than a page should hold. `, instead));
      } else {
        hand(await answer.blob(), name);
        put(said, h("p", { class: "quiet" }, `Saved as ${name}.`));
      }
    } catch (error) {
      if (error.name !== "AbortError") put(said, problemBox(error));
    } finally {
      signal.removeEventListener("abort", stop);
      button.disabled = false;
    }
  };
  const button = h("button", { type: "button", onclick: save }, words);
  return h("div", { class: "actions" }, button, said);
}

function hand(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

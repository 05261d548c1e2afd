// Prepared corpora: what they weigh, and who used them last.

import { getJson } from "./api.js";
import { h, put } from "./dom.js";
import { bytes, count, short, stateBadge, when } from "./format.js";
import { pagedTable } from "./paged_table.js";

const JOBS_SHOWN = 5;

/** Show corpora in `main` until `signal`. */
export function corporaView(main, signal) {
  const area = h("div");
  put(main, h("h1", { tabindex: "-1" }, "Corpora"),
    h("p", { class: "quiet" }, "Texts as tokens, ready to train on; jobs with the same sources share one. ", h("code", null, "electra clean"), " deletes what nobody uses."), area);
  pagedTable(area, {
    label: "Corpora",
    names: ["Digest", "Size", "Tokens", "Documents", "Made", "Last used", "Jobs"],
    row: (one) => [h("code", { title: one.digest }, one.digest.slice(0, 12)), bytes(one.size_bytes), short(one.num_tokens), short(one.num_documents),
      when(one.created_at), when(one.last_used_at), jobsOf(one)],
    read: (cursor) => getJson("/v1/corpora", { cursor }, signal),
    none: "No corpus is prepared yet.",
  });
}

function jobsOf({ jobs }) {
  const rest = jobs.length - JOBS_SHOWN;
  return h("div", null, jobs.slice(0, JOBS_SHOWN).map((one) => h("div", null, h("a", { href: `#/jobs/${encodeURIComponent(one.job_id)}` }, one.job_id), " ", stateBadge(one.state))),
    rest > 0 ? h("small", null, `and ${count(rest)} more`) : null);
}

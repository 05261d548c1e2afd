// A list that the service gives page by page: the first at once, each further one for a button.

import { h, put } from "./dom.js";
import { count } from "./format.js";
import { table } from "./job_result.js";
import { empty, loading, problemBox } from "./notice.js";

/**
 * Fill `area`. `read(cursor)`: a page, `{items, next_cursor}`; `names`, `row(item)`: of the table; `none`: for an empty
 * list.
 */
export async function pagedTable(area, { label, names, row, read, none }) {
  const items = [];
  const more = async (cursor) => {
    const isFirst = items.length === 0;
    if (isFirst) put(area, loading(label.toLowerCase()));
    let page;
    try {
      page = await read(cursor);
    } catch (error) {
      if (error.name === "AbortError") return;
      const box = problemBox(error, { onRetry: () => more(cursor) });
      if (isFirst) put(area, box);
      else area.querySelector(".pager").replaceWith(h("div", { class: "pager" }, box));
      return;
    }
    const known = items.length;
    items.push(...page.items);
    const next = page.next_cursor ?? null;
    const pager = next === null ? null : h("div", { class: "pager" },
      h("button", { type: "button", onclick: () => more(next) }, "More"), h("span", { class: "quiet", role: "status" }, `${count(items.length)} so far`));
    put(area, items.length ? table(label, names, items.map(row), true) : next === null ? empty(none) : null, pager);
    // The button that was pressed is gone: on with the first of what it brought.
    if (cursor !== null) (area.querySelectorAll("tbody tr")[known]?.querySelector("a") ?? area.querySelector(".pager button"))?.focus();
  };
  await more(null);
}

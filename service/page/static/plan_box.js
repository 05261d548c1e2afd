// What a job would cost, of whichever kind it is.

import { h } from "./dom.js";
import { bytes, count, figure, short } from "./format.js";

/** A list of figures and the warnings of a plan. */
export function planBox(plan) {
  const known = Object.entries(plan).filter(([name, value]) => !["spec", "kind", "warnings"].includes(name) && value !== null);
  return [
    plan.warnings?.length ? h("div", { class: "warning" }, h("strong", null, "Mind"), h("ul", null, plan.warnings.map((one) => h("li", null, one)))) : null,
    h("dl", { class: "facts" }, h("div", null, h("dt", null, "kind"), h("dd", null, plan.spec.kind)), h("div", null, h("dt", null, "name"), h("dd", null, plan.spec.name)),
      known.map(([name, value]) => h("div", null, h("dt", null, name.replace(/^num_/, "").replaceAll("_", " ")), h("dd", null, written(name, value))))),
  ];
}

function written(name, value) {
  if (Array.isArray(value)) return value.join(", ");
  if (name.includes("bytes")) return bytes(value);
  if (name.includes("flops")) return figure(value);
  if (/parameters|tokens/.test(name)) return short(value);
  return typeof value === "number" && Number.isInteger(value) ? count(value) : figure(value);
}

// Losses, held-out figures and speed, as far back as the service keeps the job's events.

import { Chart } from "./chart.js";
import { h, outward, put } from "./dom.js";
import { empty } from "./notice.js";

const MOST_LINES = 6;

export function curvesPanel(body, first, history, signal) {
  const charts = { losses: new Chart("Losses").watch(signal), evaluation: new Chart("Held-out figures").watch(signal), speed: new Chart("Tokens per second").watch(signal) };
  const axis = h("select", { onchange: () => draw() }, h("option", { value: "step" }, "steps"), h("option", { value: "tokens" }, "tokens"));
  const figures = h("fieldset", { class: "choices" });
  const note = h("p", { class: "quiet" });
  const nothing = h("div");
  const area = h("div", { class: "charts" });
  let chosen = null; // names of held-out figures; those of the objective's headline until somebody chooses
  let offered = "";

  const draw = () => {
    const isThere = Object.values(history.curves).some((curves) => curves.size);
    put(nothing, isThere ? null : empty("No figures yet. They come while the job trains."));
    const shown = Object.entries(charts).filter(([name]) => history.curves[name].size);
    const wanted = shown.map(([, chart]) => chart.element);
    if (wanted.length !== area.children.length) put(area, wanted);
    offer([...history.curves.evaluation.keys()]);
    for (const [name, chart] of shown) chart.update(linesOf(history.curves[name], name === "evaluation" ? chosen : null, axis.value), axis.value);
    note.textContent = history.isMissing ? "Earlier points are no longer kept by the service; MLflow has them all." : "";
  };
  const offer = (names) => {
    chosen ??= names.length ? headline(names) : null;
    if (offered === names.join() || names.length < 2) return;
    offered = names.join();
    const box = (name) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: chosen.has(name), onchange: (event) => {
      if (event.target.checked) chosen.add(name);
      else chosen.delete(name);
      draw();
    } }), ` ${name}`);
    put(figures, h("legend", null, "Held-out figures"), names.map(box));
  };
  put(body, h("h2", null, "Curves"), h("p", { class: "quiet" }, "From the job's events, a point every few seconds. ",
    first.links?.mlflow ? [outward(first.links.mlflow, "All figures in MLflow")] : null), note,
    h("label", null, "Against ", axis), nothing, area, figures);
  draw();
  return { onHistory: draw };
}

function linesOf(curves, chosen, axis) {
  return [...curves]
    .filter(([name]) => !chosen || chosen.has(name))
    .slice(0, MOST_LINES)
    .map(([name, points]) => ({
      name,
      points: points.filter((point) => point[axis] !== null).map((point) => ({ x: point[axis], y: point.value })),
    }));
}

/** What a reader looks at first: areas under curves, else the first figure. */
function headline(names) {
  const areas = names.filter((name) => name.includes("auc"));
  return new Set(areas.length ? areas : names.slice(0, 1));
}

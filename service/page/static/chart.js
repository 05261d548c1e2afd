// A line chart in SVG: axes, a legend, values under the pointer or by arrow keys, and the same as a table.

import { bounds, nearest, thinned, ticks } from "./chart_scale.js";
import { h, put, say, svg } from "./dom.js";
import { figure, short } from "./format.js";

const HEIGHT = 220;
const [LEFT, RIGHT, TOP, BOTTOM] = [52, 12, 10, 34];
const TABLE_ROWS = 50;
// Lines differ by dashes as well as by colour.
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4", "4 2 1 2"];

/** A chart; `update(series, xName)` with series [{name, points: [{x, y}]}], x rising. */
export class Chart {
  constructor(title) {
    this.title = title;
    this.width = 640;
    this.series = [];
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.legend = h("ul", { class: "legend" });
    this.picture = svg("svg", { class: "chart", height: HEIGHT, role: "img", tabindex: "0", "aria-label": title });
    this.table = h("div");
    this.details = h("details", { ontoggle: () => this.drawTable() }, h("summary", null, `${title} as a table`), this.table);
    this.element = h("figure", null, h("figcaption", null, title), this.legend, this.picture, this.readout, this.details);
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.mark(null));
    this.picture.addEventListener("keydown", (event) => this.step(event));
    this.picture.addEventListener("blur", () => this.mark(null));
  }

  /** Follow the width that there is, until `signal`. */
  watch(signal) {
    const observer = new ResizeObserver(([entry]) => {
      const width = Math.max(240, Math.round(entry.contentRect.width));
      if (width !== this.width) [this.width] = [width, this.draw(width)];
    });
    observer.observe(this.element);
    signal.addEventListener("abort", () => observer.disconnect());
    return this;
  }

  update(series, xName) {
    Object.assign(this, { series, xName });
    this.draw();
    if (this.details.open) this.drawTable();
  }

  draw(width = this.width) {
    this.width = width;
    const all = this.series.flatMap((one) => one.points);
    const xs = all.map((point) => point.x);
    const [least, most] = xs.length ? [Math.min(...ends(this.series, 0)), Math.max(...ends(this.series, -1))] : [0, 1];
    const [low, high] = bounds(all.map((point) => point.y));
    const x = (value) => LEFT + ((value - least) / (most - least || 1)) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
    this.scale = { x, y, least, most };
    this.picture.setAttribute("width", width);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("aria-label", this.words());
    this.cursor = svg("g", { class: "cursor" });
    put(this.picture, this.axes(width, low, high), this.series.map((one, place) => line(one, place, x, y, width)), this.cursor);
    put(this.legend, this.series.map((one, place) =>
      h("li", null, svg("svg", { width: 24, height: 10, "aria-hidden": "true" }, svg("line", { x1: 0, x2: 24, y1: 5, y2: 5, class: `line line-${place % 6}`, "stroke-dasharray": DASHES[place % 6] })), ` ${one.name} `, h("b", null, figure(one.points.at(-1)?.y)))));
    if (this.at !== null && this.at !== undefined) this.mark(this.at);
  }

  axes(width, low, high) {
    const { x, y, least, most } = this.scale;
    const across = ticks(low, high, 5).map((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(value))]);
    const along = ticks(least, most, width / 110).map((value) =>
      svg("text", { x: x(value), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, short(value)));
    return svg("g", { class: "axes", "aria-hidden": "true" }, across, along,
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
      svg("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, this.xName));
  }

  words() {
    const last = this.series.map((one) => `${one.name} ${figure(one.points.at(-1)?.y)}`).join(", ");
    return `${this.title}. Last: ${last || "nothing yet"}. Arrow keys read values; a table follows.`;
  }

  point(event) {
    const place = event.clientX - this.picture.getBoundingClientRect().left;
    const { least, most } = this.scale;
    this.mark(least + ((place - LEFT) / (this.width - LEFT - RIGHT)) * (most - least));
  }

  step(event) {
    const points = this.longest();
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined || !points.length) return;
    event.preventDefault();
    const now = this.at === null || this.at === undefined ? points.length : points.indexOf(nearest(points, this.at));
    this.mark(points[Math.min(points.length - 1, Math.max(0, now + move))].x);
  }

  longest() {
    return this.series.reduce((one, other) => (other.points.length > one.length ? other.points : one), []);
  }

  mark(at) {
    this.at = at;
    const points = this.longest();
    if (at === null || !points.length) {
      put(this.cursor);
      return say(this.readout, "");
    }
    const near = nearest(points, at).x;
    const { x, y } = this.scale;
    const found = this.series.filter((one) => one.points.length).map((one) => ({ name: one.name, point: nearest(one.points, near) }));
    put(this.cursor, svg("line", { x1: x(near), x2: x(near), y1: TOP, y2: HEIGHT - BOTTOM }),
      found.map(({ point }) => svg("circle", { cx: x(point.x), cy: y(point.y), r: 3.5 })));
    return say(this.readout, `${this.xName} ${figure(near)}: ${found.map(({ name, point }) => `${name} ${figure(point.y)}`).join(", ")}`);
  }

  drawTable() {
    if (!this.details.open) return;
    const rows = thinned(this.longest(), TABLE_ROWS).map((point) => h("tr", null, h("th", { scope: "row" }, figure(point.x)),
      this.series.map((one) => h("td", null, figure(one.points.length ? nearest(one.points, point.x).y : null)))));
    put(this.table, h("div", { class: "scrolling", role: "region", "aria-label": this.title, tabindex: "0" },
      h("table", null, h("thead", null, h("tr", null, [this.xName, ...this.series.map((one) => one.name)].map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, rows))));
  }
}

function ends(series, place) {
  return series.filter((one) => one.points.length).map((one) => one.points.at(place).x);
}

function line({ points }, place, x, y, width) {
  const corners = thinned(points, width).map((point) => `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`);
  if (corners.length === 1) return svg("circle", { class: `dot line-${place % 6}`, cx: x(points[0].x), cy: y(points[0].y), r: 3 });
  return svg("polyline", { class: `line line-${place % 6}`, points: corners.join(" "), "stroke-dasharray": DASHES[place % 6] });
}

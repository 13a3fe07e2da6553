// Line charts of the last hour, with axes.

import {element, svgElement} from "./dom.js";
import {count, rate, span} from "./format.js";

const width = 600, height = 100, hour = 3600_000;

// ceiling returns the least of 1, 2 and 5 times a power of ten that is at least n and least.
export function ceiling(n, least = 1) {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, least)));
  return [1, 2, 5, 10].map((k) => k * power).find((k) => k >= Math.max(n, least));
}

// chart returns a figure with a line through "of" each point, a number or null. The line is
// interrupted at nulls and missing points. write formats a value with its unit; least is the
// smallest top of the axis.
export function chart(title, history, of, write, least = 1) {
  const {points, every_ms: every} = history;
  const end = points.length ? points.at(-1).unix_ms : 0;
  const known = points.map(of).filter((n) => n !== null);
  const peak = Math.max(0, ...known), top = ceiling(peak, least);
  const drawn = runs(points, of, every).map((run) => svgElement("polyline", {
    points: run.map(([at, n]) => `${((at - end + hour) / hour * width).toFixed(1)},` +
      `${(height - n / top * height).toFixed(1)}`).join(" "),
  }));
  const last = points.length ? of(points.at(-1)) : null;
  const now = last === null ? "—" : write(last);
  const most = known.length === 0 ? "no data" : `at most ${write(peak)}`;
  const grid = [0, 0.5, 1].map((part) => svgElement("line",
    {x1: 0, x2: width, y1: part * height, y2: part * height}));
  return element("figure", {},
    element("figcaption", {}, element("span", {class: "strong"}, title),
      element("span", {}, now, element("span", {class: "quiet"}, `, ${most}`))),
    element("div", {class: "plot"},
      element("p", {class: "rise", "aria-hidden": "true"},
        [top, top / 2, 0].map((n) => element("span", {}, write(n)))),
      svgElement("svg", {
        viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
        "aria-label": `${title} over the last hour: now ${now}, ${most}`,
      }, grid, drawn),
      element("p", {class: "run", "aria-hidden": "true"},
        ["60 min ago", "30", "now"].map((text) => element("span", {}, text)))));
}

// runs splits a series at gaps. A single point becomes a short line.
function runs(points, of, every) {
  const out = [];
  let before = -Infinity;
  for (const p of points) {
    const n = of(p);
    if (n === null) {
      before = -Infinity;
      continue;
    }
    if (p.unix_ms - before > 3 * every) out.push([[p.unix_ms - every, n]]);
    out.at(-1).push([p.unix_ms, n]);
    before = p.unix_ms;
  }
  return out;
}

const ms = (n) => `${rate(n)} ms`;
const perSecond = (n) => `${rate(n)}/s`;
const age = (n) => (n === 0 ? "0 s" : n < 1000 ? `${count(n)} ms` : span(n));

// charts returns the charts of the overview.
export function charts(history) {
  return element("div", {class: "lines"},
    chart("Transactions", history, (p) => p.transactions_per_s, perSecond),
    chart("Transaction latency, p99", history, (p) => p.transaction_p99_ms || null, ms),
    chart("Waiting for observers", history, (p) => p.backlog, count),
    chart("Client operations", history, (p) => p.operations_per_s, perSecond),
    chart("Operation latency, p99", history, (p) => p.operation_p99_ms || null, ms),
    chart("Findings", history, (p) => p.findings ?? null, count));
}

// observerCharts returns the charts of one observer, whose points history has.
export function observerCharts(history) {
  const of = (key) => (p) => p.observers[0]?.[key] ?? null;
  return element("div", {class: "lines four"},
    chart("Runs", history, of("runs_per_s"), perSecond),
    chart("Lag: age of the oldest change", history, of("oldest_ms"), age, 1000),
    chart("Failures", history, of("failures_per_s"), perSecond),
    chart("Conflicts", history, of("conflicts_per_s"), perSecond));
}

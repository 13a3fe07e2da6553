// Line charts of the last hour.

import {element, svgElement} from "./dom.js";
import {count, rate} from "./format.js";

const width = 600, height = 100;

// chart returns a figure with a line through "of" each point, a number or null. The line is
// interrupted at nulls and missing points.
function chart(title, history, of, write) {
  const {points, every_ms: every} = history;
  const end = points.length ? points.at(-1).unix_ms : 0;
  const begin = end - 3600_000;
  const peak = Math.max(0, ...points.map((p) => of(p) ?? 0));
  const top = Math.max(1, peak);
  const drawn = runs(points, of, every).map((run) => svgElement("polyline", {
    points: run.map(([at, n]) => `${((at - begin) / 3600_000 * width).toFixed(1)},` +
      `${(height - n / top * (height - 4) - 1).toFixed(1)}`).join(" "),
  }));
  const last = points.length ? of(points.at(-1)) : null;
  const now = last === null ? "—" : write(last);
  const most = drawn.length === 0 ? "no data" : `at most ${write(peak)}`;
  return element("figure", {},
    element("figcaption", {}, element("span", {class: "strong"}, title), element("span", {}, now)),
    svgElement("svg", {
      viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${title} over the last hour: now ${now}, ${most}`,
    }, svgElement("line", {x1: 0, x2: width, y1: height - 1, y2: height - 1}), drawn),
    element("p", {class: "scale"}, element("span", {}, "1 h ago"), element("span", {}, most),
      element("span", {}, "now")));
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

// charts returns the charts of the overview.
export function charts(history) {
  const ms = (n) => `${rate(n)} ms`;
  const perSecond = (n) => `${rate(n)}/s`;
  return element("div", {class: "lines"},
    chart("Transactions", history, (p) => p.transactions_per_s, perSecond),
    chart("Transaction latency, p99", history, (p) => p.transaction_p99_ms || null, ms),
    chart("Waiting for observers", history, (p) => p.backlog, count),
    chart("Client operations", history, (p) => p.operations_per_s, perSecond),
    chart("Operation latency, p99", history, (p) => p.operation_p99_ms || null, ms),
    chart("Findings", history, (p) => p.findings ?? null, count));
}

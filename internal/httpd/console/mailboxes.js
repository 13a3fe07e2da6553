// The mailboxes of the actors that work in batches: where batching is tuned.

import {get} from "./ask.js";
import {element, svgElement, table} from "./dom.js";
import {count, nodeName, span} from "./format.js";

const sum = (list) => list.reduce((a, b) => a + b, 0);

// quantile estimates from a histogram, as package metrics does.
export function quantile(h, q) {
  const rank = q * sum(h.counts);
  let below = 0, lower = 0;
  for (let i = 0; i < h.bounds.length; i++) {
    const n = h.counts[i];
    if (n > 0 && below + n >= rank) {
      return lower + (h.bounds[i] - lower) * (rank - below) / n;
    }
    below += n;
    lower = h.bounds[i];
  }
  return lower;
}

// time writes seconds.
export function time(s) {
  if (s === 0) return "—";
  return s < 0.001 ? `${Math.round(s * 1e6)} µs` : s < 1 ? `${(s * 1000).toFixed(1)} ms`
    : `${s.toFixed(1)} s`;
}

// shape draws how large batches are, a bar for each power of two.
function shape(h) {
  const all = Math.max(1, sum(h.counts)), most = Math.max(1, ...h.counts);
  const parts = h.counts.map((n, i) => (n > 0
    ? `${i < h.bounds.length ? `up to ${h.bounds[i]}` : "more"}: ${Math.round(100 * n / all)}%`
    : null)).filter(Boolean);
  return svgElement("svg", {
    viewBox: `0 0 ${h.counts.length * 10} 30`, class: "shape", role: "img",
    "aria-label": `Messages a batch: ${parts.join(", ") || "none"}`,
  }, svgElement("title", {}, parts.join(", ")), h.counts.map((n, i) => svgElement("rect", {
    x: i * 10 + 1, width: 8, y: 29 - 28 * n / most, height: 28 * n / most + 1,
  })));
}

export async function mailboxes({status}, question) {
  const found = await get("mailboxes");
  const ever = question.get("since") === "start";
  const rows = found.nodes.flatMap((n) => n.mailboxes.map((all) => {
    const m = ever || !all.lately ? all : all.lately;
    const batches = sum(m.batches.counts);
    const waited = sum(m.waits.counts) > 0, took = sum(m.took.counts) > 0;
    return [
      nodeName(status, n.node_id), m.actor,
      {value: count(m.queued), class: m.queued > 1000 ? "warning strong" : null},
      m.actor === "tablet" ? count(m.longest) : "—", count(batches),
      batches > 0 ? (m.batches.sum / batches).toFixed(1) : "—", {value: shape(m.batches)},
      waited ? time(quantile(m.waits, 0.5)) : "—", waited ? time(quantile(m.waits, 0.99)) : "—",
      took ? time(quantile(m.took, 0.5)) : "—", took ? time(quantile(m.took, 0.99)) : "—",
    ];
  }));
  return [
    element("h2", {}, "Mailboxes"),
    element("p", {class: "quiet"}, "Messages that came while a batch was at work are the next " +
      "batch: its size follows the load. Half of the messages wait less than the one time, 99 % less " +
      "than the other; a dash is what an actor does not measure. Bars: 1, 2, 4 … 4096 messages a " +
      "batch, and more."),
    element("p", {}, "Figures are of ", [["", "the last minutes"], ["?since=start", "all since each node's start"]]
      .map(([query, title], i) => [i > 0 ? " · " : "", element("a", {href: `#/mailboxes${query}`,
        "data-key": title, "aria-current": ever === (query !== "") ? "true" : null,
        class: ever === (query !== "") ? "strong" : null}, title)]),
    !ever && ` (${span(Math.max(0, ...found.nodes.map((n) => n.lately_ms)))})`, "."),
    found.silent.map((why) => element("p", {class: "warning"}, `Missing: ${why}`)),
    table("Mailboxes", ["~node", "~of", "#waiting now", "#in the fullest", "#batches", "#a batch",
      "batch sizes", "#wait, half", "#wait, 99 %", "#a batch takes, half", "#a batch takes, 99 %"],
    rows),
    element("h2", {}, "To do something"),
    element("p", {}, "Thousands that wait in tablets, or waits of many milliseconds there: the " +
      "leaders are over their limit. See ", element("a", {href: "#/heat", "data-key": "heat"}, "Heat"),
    " for where, and ", element("a", {href: "#/tablets?by=load", "data-key": "load"}, "Tablets"),
    " for whose they are; ", element("code", {}, "percolator tablet split TABLE ROW"),
    " shares a tablet out. Writes of the log that take long: the disk. Limits and lingering: ",
    element("code", {}, "percolator start --help"), "."),
  ];
}

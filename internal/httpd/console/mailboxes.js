// The Mailboxes page: queues and batches of the actors.

import {get} from "./ask.js";
import {element, svgElement, table, whole} from "./dom.js";
import {count, nodeName, span} from "./format.js";
import {command} from "./session.js";

const sum = (list) => list.reduce((a, b) => a + b, 0);

// quantile estimates a quantile of a histogram, as package metrics does.
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

// time formats seconds.
export function time(s) {
  if (s === 0) return "—";
  return s < 0.001 ? `${Math.round(s * 1e6)} µs` : s < 1 ? `${(s * 1000).toFixed(1)} ms`
    : `${s.toFixed(1)} s`;
}

// shape draws the distribution of batch sizes, a bar for each power of two.
function shape(h) {
  const all = Math.max(1, sum(h.counts)), most = Math.max(1, ...h.counts);
  const parts = h.counts.map((n, i) => (n > 0
    ? `${i < h.bounds.length ? `up to ${h.bounds[i]}` : "more"}: ${Math.round(100 * n / all)}%`
    : null)).filter(Boolean);
  return svgElement("svg", {
    viewBox: `0 0 ${h.counts.length * 10} 30`, class: "shape", role: "img",
    "aria-label": `Messages per batch: ${parts.join(", ") || "none"}`,
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
      whole(nodeName(status, n.node_id)), m.actor,
      {value: count(m.queued), class: m.queued > 1000 ? "warning strong" : null},
      m.actor === "tablet" ? count(m.longest) : "—", count(batches),
      batches > 0 ? (m.batches.sum / batches).toFixed(1) : "—", {value: shape(m.batches)},
      waited ? time(quantile(m.waits, 0.5)) : "—", waited ? time(quantile(m.waits, 0.99)) : "—",
      took ? time(quantile(m.took, 0.5)) : "—", took ? time(quantile(m.took, 0.99)) : "—",
    ];
  }));
  return [
    element("h2", {}, "Mailboxes"),
    element("p", {class: "quiet"}, "Messages that arrive while an actor executes a batch form its next " +
    "batch, so batch sizes follow the load. A dash marks times that an actor does not measure. Bars: " +
    "1, 2, 4 … 4096 messages per batch, and more."),
    element("p", {}, "Period: ", [["", "the last minutes"], ["?since=start", "since each node's start"]]
      .map(([query, title], i) => [i > 0 ? " · " : "", element("a", {href: `#/mailboxes${query}`,
        "data-key": title, "aria-current": ever === (query !== "") ? "true" : null,
        class: ever === (query !== "") ? "strong" : null}, title)]),
    !ever && ` (${span(Math.max(0, ...found.nodes.map((n) => n.lately_ms)))})`, "."),
    found.silent.map((why) => element("p", {class: "warning"}, `Missing: ${why}`)),
    table("Mailboxes", ["~node", "~actor", "#queued", "#longest queue", "#batches", "#mean batch",
      "batch sizes", "#wait, p50", "#wait, p99", "#execution, p50", "#execution, p99"],
    rows),
    element("h2", {}, "Commands"),
    element("p", {}, "Thousands of queued messages of tablets, or waits of many milliseconds, mean that " +
    "leaders are overloaded. Find them on ", element("a", {href: "#/heat", "data-key": "heat"}, "Heat"),
    " and ", element("a", {href: "#/tablets?by=load", "data-key": "load"}, "Tablets"),
    ", and split a tablet: ", command("percolator tablet split TABLE ROW"),
    ". Slow writes of the log point at the disk. Queue limits and linger times: ",
    command("percolator start --help"), "."),
  ];
}

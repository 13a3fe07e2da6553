// The Oracle page: the node that issues timestamps, their number, and the nodes' clocks.

import {get} from "./ask.js";
import {element, table, whole} from "./dom.js";
import {compare, count, millis, moment, nodeName, span} from "./format.js";
import {quantile, time} from "./mailboxes.js";
import {command} from "./session.js";

// clockWarn is the clock skew that internal/health reports, in milliseconds.
const clockWarn = 500;

export async function oracle({status}) {
  const answered = status.nodes.filter((r) => r.status !== null);
  const leader = answered.map((r) => r.status.meta?.leader_node ?? 0).find((id) => id !== 0) ?? 0;
  const newest = answered.reduce((a, r) => (a === null ||
    compare(r.status.oracle_last, a.status.oracle_last) > 0 ? r : a), null);
  const found = await get("mailboxes").catch(() => ({nodes: []})); // waits are then unknown
  const boxes = new Map(found.nodes.map((n) => [n.node_id,
    n.mailboxes.find((m) => m.actor === "oracle")]));
  const waits = (id, q) => {
    const h = boxes.get(id)?.waits;
    return h && h.counts.some((n) => n > 0) ? time(quantile(h, q)) : "—";
  };
  const last = newest === null || newest.status.oracle_last === 0 ? 0
    : millis(newest.status.oracle_last);
  return [
    element("h2", {}, "Timestamp oracle"),
    leader !== 0
      ? element("p", {}, "It runs on the node that leads meta: ",
        element("span", {class: "strong"}, nodeName(status, leader)), ".")
      : element("p", {class: "critical strong"}, "No answering node knows the leader of meta: " +
      "no timestamps are issued, so no new transaction or snapshot can start."),
      last > 0 && element("p", {}, `Last known timestamp: ${moment(last)} UTC, `,
      last > status.unix_ms + clockWarn
        ? element("span", {class: "critical strong"}, `${span(last - status.unix_ms)} ahead of this ` +
          "node's clock")
        : `${span(Math.max(0, status.unix_ms - last))} before now`, "."),
    table("Timestamp oracle", ["~node", "#last issued, UTC", "#issued", "#batches", "#mean batch",
      "#wait, p50", "#wait, p99", "#clock ahead of the answering node"],
    answered.map((r) => [
      {value: [whole(nodeName(status, r.node.node_id)),
        r.node.node_id === leader && element("small", {class: "quiet"}, "issuing")]},
      r.status.oracle_last === 0 ? "—" : moment(millis(r.status.oracle_last)),
      count(r.status.oracle_served), count(r.status.oracle_batches),
      r.status.oracle_batches > 0
        ? (r.status.oracle_served / r.status.oracle_batches).toFixed(1) : "—",
      waits(r.node.node_id, 0.5), waits(r.node.node_id, 0.99),
      {value: `${r.clock_ahead_ms} ms`,
        class: Math.abs(r.clock_ahead_ms) >= clockWarn ? "critical strong" : null},
    ])),
    element("h2", {}, "Commands"),
    element("p", {}, "Clock skew: fix time synchronisation on the node (chrony); a node whose " +
    "clock is too far ahead issues no timestamps. Move the oracle to another node: ",
    command("percolator tablet move 1 --to NODE --leader"), "."),
  ];
}

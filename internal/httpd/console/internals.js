// What is inside each node: the oracle, the log, history, placement, certificates.

import {element, table} from "./dom.js";
import {count, millis, nodeName, size, span} from "./format.js";

const clock = (timestamp) => (timestamp === 0 ? "—"
  : new Date(millis(timestamp)).toISOString().slice(11, 23));

const per = (n, batches) => (batches > 0 ? (n / batches).toFixed(1) : "—");

export function internals({status}) {
  const answered = status.nodes.filter((r) => r.status !== null);
  const each = (row) => answered.map((r) => [nodeName(status, r.node.node_id), ...row(r.status)]);
  const number = "number";
  const placement = answered.map((r) => r.status.placement).find((p) => p !== null);
  return [
    element("h2", {}, "Timestamp oracle"),
    table("Timestamp oracle", [{name: "node"}, {name: "last given, UTC", class: number},
      {name: "given", class: number}, {name: "batches", class: number}, {name: "a batch", class: number}],
    each((s) => [clock(s.oracle_last), count(s.oracle_served), count(s.oracle_batches),
      per(s.oracle_served, s.oracle_batches)])),
    element("h2", {}, "Raft log"),
    table("Raft log", [{name: "node"}, {name: "appends", class: number}, {name: "synced writes", class: number},
      {name: "a sync", class: number}, {name: "written", class: number}, {name: "files", class: number},
      {name: "on disk", class: number}, {name: "kept", class: number}, {name: "a start repeats", class: number},
      {name: "checkpoint", class: number}],
    each((s) => [count(s.log_requests), count(s.log_batches), per(s.log_requests, s.log_batches),
      ...(s.log === null ? ["in memory", "—", "—", "—", "—", "—"] : [size(s.log.written), count(s.log.segments),
        size(s.log.bytes), size(s.log.live_bytes), size(s.log.unchecked),
        s.log.checkpoint_age_ms > 0 ? `${span(s.log.checkpoint_age_ms)} ago` : "nothing behind it"])])),
    element("h2", {}, "History and meta"),
    table("History and meta", [{name: "node"}, {name: "readable from, UTC", class: number},
      {name: "collected to, UTC", class: number}, {name: "collected", class: number}, {name: "held open", class: number},
      {name: "waits for", class: "free"}, {name: "meta, as this node sees it", class: "free"}],
    each((s) => [clock(s.history?.bound ?? 0), clock(s.history?.safepoint ?? 0), count(s.history?.collected ?? 0),
      count(s.history?.holds ?? 0), s.history?.blocked_by ?? "",
      s.meta?.error ? {value: s.meta.error, class: "critical"}
        : s.meta?.leader_node ? `led by ${nodeName(status, s.meta.leader_node)}` : "—"])),
    element("h2", {}, "Placement"),
    placement
      ? element("p", {}, `${placement.target} replicas of each tablet are wanted; ` +
        `${placement.under_replicated} tablets lack some, ${placement.changing} are being changed; ` +
        `since this leader of meta: ${count(placement.moves)} moves, ${count(placement.transfers)} leaders moved, ` +
        `${count(placement.failures)} steps repeated.`, placement.blocked.map((b) => element("p", {class: "warning"}, b)))
      : element("p", {class: "quiet"}, "The node that leads meta does not answer."),
    element("h2", {}, "Certificates"),
    table("Certificates", [{name: "node"}, {name: "file", class: "free"}, {name: "ends, UTC"}, {name: "", class: "free"}],
      answered.flatMap((r) => r.status.certificates.map((c) => [nodeName(status, r.node.node_id), c.file,
        new Date(c.expires_unix_ms).toISOString().slice(0, 16), {value: c.problem, class: "warning"}])),
      "none: connections are plain text"),
    element("p", {class: "quiet"}, "Mailboxes, batch sizes, the store and Raft: ",
      element("a", {href: "/metrics", "data-key": "metrics"}, "metrics of this node"), "."),
  ];
}

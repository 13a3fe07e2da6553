// The Internals page: each node's log, history and certificates.

import {element, table, whole} from "./dom.js";
import {count, millis, nodeName, size, span} from "./format.js";

const clock = (timestamp) => (timestamp === 0 ? "—"
  : new Date(millis(timestamp)).toISOString().slice(11, 23));

const per = (n, batches) => (batches > 0 ? (n / batches).toFixed(1) : "—");

// logFiles returns the columns on a node's log files.
function logFiles(log) {
  if (log === null) return ["in memory", "—", "—", "—", "—", "—"];
  const age = log.checkpoint_age_ms;
  return [size(log.written), count(log.segments), size(log.bytes), size(log.live_bytes),
    size(log.unchecked), age > 0 ? `${span(age)} ago` : "up to date"];
}

export function internals({status}) {
  const answered = status.nodes.filter((r) => r.status !== null);
  const each = (row) => answered.map((r) => [whole(nodeName(status, r.node.node_id)), ...row(r.status)]);
  return [
    element("h2", {}, "Raft log"),
    table("Raft log", ["~node", "#appends", "#synced writes",
      "#appends/sync", "#written", "#files", "#on disk", "#live", "#replayed at start",
      "#checkpoint"],
    each((s) => [count(s.log_requests), count(s.log_batches),
      per(s.log_requests, s.log_batches), ...logFiles(s.log)])),
    element("h2", {}, "History and meta"),
    table("History and meta", ["~node", "#readable from, UTC",
      "#collected up to, UTC", "#collected", "#holds",
      "~blocked by", "~meta, seen from this node"],
    each((s) => [clock(s.history?.bound ?? 0), clock(s.history?.safepoint ?? 0),
      count(s.history?.collected ?? 0),
      count(s.history?.holds ?? 0), s.history?.blocked_by ?? "",
      s.meta?.error ? {value: s.meta.error, class: "critical"}
        : s.meta?.leader_node ? {value: ["led by ", whole(nodeName(status, s.meta.leader_node))]}
          : "—"])),
    element("h2", {}, "Certificates"),
    table("Certificates", ["~node", "~file", "expires, UTC", "~problem"],
      answered.flatMap((r) => r.status.certificates.map((c) => [
        whole(nodeName(status, r.node.node_id)), c.file,
        new Date(c.expires_unix_ms).toISOString().slice(0, 16),
        {value: c.problem, class: "warning"}])),
      "none: connections are in plain text"),
    element("p", {class: "quiet"}, "Mailboxes, batch sizes, the store and Raft: ",
      element("a", {href: "/metrics", "data-key": "metrics"}, "metrics of this node"), "."),
  ];
}

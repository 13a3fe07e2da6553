// The Nodes page.

import {element, table, whole} from "./dom.js";
import {count, nodeName, rate, shell, size, span} from "./format.js";
import {action, command} from "./session.js";

// clockWarn is the clock skew that internal/health reports, in milliseconds.
const clockWarn = 500;

const drains = {
  NODE_STATE_DRAINING: "draining", NODE_STATE_DRAINED: "drained", NODE_STATE_GONE: "gone",
};

// state returns a node's state as text and CSS class.
function state(report) {
  const {node} = report;
  const bad = "critical strong";
  if (!node.alive) return {value: drains[node.state] ?? "away", class: bad};
  if (report.status === null) return {value: `silent: ${report.error}`, class: `${bad} free`};
  if (report.status.failed !== "") return {value: "failed", class: bad};
  if (report.status.write_blocked !== "") return {value: "refuses writes", class: bad};
  return {value: drains[node.state] ?? "alive", class: drains[node.state] ? "warning" : "good"};
}

// consoleOf links to a node's own console if its address is safe in a link.
function consoleOf(node) {
  const plain = /^(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+$/.test(node.http);
  if (!plain) return node.http || "none";
  return element("a", {href: `http://${node.http}/`, "data-key": `console ${node.node_id}`},
    whole(node.http));
}

// drain returns the button that starts or cancels a drain.
function drain(status, {node_id: id, state: now}) {
  const undo = Boolean(drains[now]) && now !== "NODE_STATE_GONE";
  return action(undo ? "Cancel the drain" : "Drain", nodeName(status, id), "node-drain",
    {node_id: String(id), undo}, {seen: (status) => status.nodes.some(
      ({node}) => node.node_id === id && undo === !drains[node.state])});
}

export function nodes({status}) {
  const rows = status.nodes.map((report) => {
    const {node} = report, own = report.status, ahead = report.clock_ahead_ms;
    const labels = Object.entries(node.labels).map(([k, v]) => `${k}=${v}`).sort().join(" ");
    return [
      {value: [element("span", {title: `ID ${node.node_id}`}, whole(nodeName(status, node.node_id))),
        node.node_id === status.node_id && element("small", {class: "quiet"}, "this node"),
      labels && element("small", {class: "quiet"}, labels),
      element("small", {}, "console: ", consoleOf(node))]},
      state(report), ((build) => (build.program ? `${build.program}, with percolator ${build.version}` : build.version))(own ?? node),
      own ? span(status.unix_ms - own.started_unix_ms) : "—",
      ...(node.alive ? [count(node.replicas), count(node.leaders), rate(node.load),
        size(node.size_bytes)] : ["—", "—", "—", "—"]),
      node.alive && (own?.disk_free || node.disk_free) ? size(own?.disk_free || node.disk_free) : "—",
      own ? {value: `${ahead} ms`, class: Math.abs(ahead) >= clockWarn ? "critical" : ""} : "—",
      own ? `${report.round_trip_ms} ms` : "—",
      {value: drain(status, node)},
    ];
  });
  const away = status.nodes.filter((r) => !r.node.alive);
  return [
    element("h2", {}, "Nodes"),
    status.nodes_unavailable && element("p", {class: "warning"},
      `The node table is unreadable (${status.nodes_unavailable}): last known nodes.`),
    table("Nodes", [
      "~node", "~state", "~version", "uptime", "#replicas", "#leaders",
      "#operations/s", "#size", "#disk free", "#clock ahead", "#round trip", "!action",
    ], rows),
    element("h2", {}, "Commands"),
    element("p", {}, "Drain a node before stopping it for good: ",
      command("percolator node drain ADDRESS"),
      "; cancel the drain: ", command("percolator node drain ADDRESS --undo"), "."),
    away.map((r) => element("p", {}, "If ", whole(nodeName(status, r.node.node_id)),
      " will not come back: ",
      command(`percolator node forget ${shell(String(r.node.node_id))} --yes`), ".")),
  ];
}

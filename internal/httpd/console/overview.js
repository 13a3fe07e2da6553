// The overview: failures that the cluster survives, waiting work, and the last hour. Findings are
// shown above it (findings.js).

import {element} from "./dom.js";
import {count, nodeName, plural} from "./format.js";
import {charts} from "./lines.js";

// verdict returns one sentence on the whole cluster and its CSS class.
export function verdict({status, error}) {
  if (error !== "") {
    return {class: "critical", text: `Cluster status is unavailable: ${error}`};
  }
  if (status === null) return {class: "", text: "Loading…"};
  const with_ = (severity) => status.findings.filter((f) => f.severity === severity).length;
  const critical = with_("SEVERITY_CRITICAL"), warnings = with_("SEVERITY_WARNING");
  if (status.survives < 0) {
    return {class: "critical", text: "No quorum: some tablets are not served. " +
      `${plural(critical, "critical finding")}, ${plural(warnings, "warning")}.`};
  }
  if (critical > 0) {
    return {class: "critical", text: "Some requests fail or data is at risk: " +
      `${plural(critical, "critical finding")}, ${plural(warnings, "warning")}.`};
  }
  if (warnings > 0) {
    return {class: "warning", text: `All tablets are served. ${plural(warnings, "warning")}.`};
  }
  return {class: "good", text: "No problems found."};
}

// survives formats the number of nodes that may fail.
function survives(n, nodes) {
  if (n < 0) return {value: "no quorum", class: "critical", note: "some tablets have none now"};
  if (n > 0) {
    return {value: `any ${count(n)}`, class: "good", note: "and every tablet keeps a quorum"};
  }
  return {value: "none", class: nodes > 1 ? "warning" : null,
    note: "the next node failure loses a quorum"};
}

function tile(name, value, note, state = null) {
  return element("div", {}, element("dt", {}, name),
    element("dd", {class: state}, value, element("small", {}, note)));
}

export function overview({status, totals, history}) {
  const alive = status.nodes.filter((n) => n.node.alive).length;
  const sum = (of) => status.observers.reduce((n, o) => n + of(o), 0);
  const may = survives(status.survives, status.nodes.length);
  const parked = sum((o) => o.parked);
  return [
    element("dl", {class: "tiles"},
      tile("Nodes that may fail", may.value, may.note, may.class),
      tile("Nodes alive", `${alive} of ${status.nodes.length}`, status.nodes_unavailable
        ? "last known: the node table is unreadable" : "in the cluster",
        alive < status.nodes.length ? "warning" : null),
      tile("Tablets led", `${count(totals.led)} of ${count(totals.tablets)}`,
        "on nodes that answer",
        totals.led < totals.tablets ? "critical" : null),
      tile("Waiting for observers",
        status.observers_unavailable ? "unknown" : count(sum((o) => o.notifications)),
        status.observers_unavailable || plural(status.observers.length, "observer")),
      tile("Parked", status.observers_unavailable ? "unknown" : count(parked),
        "after too many failures", parked > 0 ? "warning" : null)),
    element("h2", {}, "The last hour"),
    element("p", {class: "quiet"}, `Totals of the ${plural(history.nodes, "node")} that answered: ` +
    "transactions of their processes, observers and clients, operations of their clients, cells that " +
    "wait or run in their observers. Latency is that of the slowest node, of transactions without " +
    "those of clients; findings are counted only while they are requested."),
    history.silent.map((why) => element("p", {class: "warning"}, `Missing: ${why}`)),
    history.points.length > 0 ? charts(history)
      : element("p", {}, "The first points appear a few seconds after the node's start."),
  ];
}

// The overview: how much may still fail, what waits, and the last hour. What is wrong stands
// above it (findings.js).

import {element} from "./dom.js";
import {count, nodeName, plural} from "./format.js";
import {charts} from "./lines.js";

// verdict is one sentence on the whole cluster, and its class.
export function verdict({status, error}) {
  if (error !== "") {
    return {class: "critical", text: `This node can't tell of the cluster: ${error}`};
  }
  if (status === null) return {class: "", text: "Asking the cluster…"};
  const with_ = (severity) => status.findings.filter((f) => f.severity === severity).length;
  const critical = with_("SEVERITY_CRITICAL"), warnings = with_("SEVERITY_WARNING");
  if (status.survives < 0) {
    return {class: "critical", text: "No quorum: some tablets are not served. " +
      `${plural(critical, "critical finding")}, ${plural(warnings, "warning")}.`};
  }
  if (critical > 0) {
    return {class: "critical", text: "Something is not served or in danger: " +
      `${plural(critical, "critical finding")}, ${plural(warnings, "warning")}.`};
  }
  if (warnings > 0) {
    return {class: "warning", text: `All is served. ${plural(warnings, "warning")}.`};
  }
  return {class: "good", text: "Nothing is wrong."};
}

// survives says how many nodes may fail.
function survives(n, nodes) {
  if (n < 0) return {value: "no quorum", class: "critical", note: "some tablets have none now"};
  if (n > 0) {
    return {value: `any ${count(n)}`, class: "good", note: "and every tablet keeps a quorum"};
  }
  return {value: "none", class: nodes > 1 ? "warning" : null,
    note: "the next node that fails takes a quorum with it"};
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
        ? "of those known last: the node table can't be read" : "in the cluster",
        alive < status.nodes.length ? "warning" : null),
      tile("Tablets led", `${count(totals.led)} of ${count(totals.tablets)}`,
        "of those on nodes that answer",
        totals.led < totals.tablets ? "critical" : null),
      tile("Waiting for observers",
        status.observers_unavailable ? "not known" : count(sum((o) => o.notifications)),
        status.observers_unavailable || plural(status.observers.length, "observer")),
      tile("Parked", status.observers_unavailable ? "not known" : count(parked),
        "given up after too many failures", parked > 0 ? "warning" : null)),
    element("h2", {}, "The last hour"),
    element("p", {class: "quiet"}, `Of the ${plural(history.nodes, "node")} that answered, together: ` +
      "transactions of their processes and observers, operations of the clients that they serve, " +
      "cells that wait or run in their observers; latency where it was worst; findings while " +
      "somebody watched."),
    history.silent.map((why) => element("p", {class: "warning"}, `Not among them: ${why}`)),
    history.points.length > 0 ? charts(history)
      : element("p", {}, "The first points come some seconds after the node's start."),
  ];
}

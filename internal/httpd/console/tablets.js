// The tablets: which rows, where, led by whom, how large and how busy.

import {bar, element, table} from "./dom.js";
import {bytes, count, nodeName, plural, rate, since, size} from "./format.js";

// most bounds the rows of one page.
const most = 500;

const orders = {
  range: {title: "by range", compare: (a, b) => a.at - b.at},
  load: {title: "by load", compare: (a, b) => b.load - a.load || a.at - b.at},
  size: {title: "by size", compare: (a, b) => b.size - a.size || a.at - b.at},
  trouble: {title: "by trouble", compare: (a, b) => b.trouble - a.trouble || a.at - b.at},
};

// position is where a tablet begins or ends, as the command line writes it.
export function position(tables, table, row) {
  const text = bytes(row);
  if (table === 0 && text === "") return "(meta)";
  const name = tables.get(table) ?? `table ${table}`;
  return text === "" ? name : `${name}/${text}`;
}

// gather puts together what the nodes say of each tablet. The leader's word counts; where
// there is none, that of whoever knows the newest descriptor.
export function gather({status, tables}) {
  const alive = new Set(status.nodes.filter((r) => r.status !== null).map((r) => r.node.node_id));
  const told = new Map();
  for (const report of status.nodes) {
    for (const t of report.status?.tablets ?? []) {
      const before = told.get(t.tablet.tablet_id);
      const better = !before || t.leader && !before.leader ||
        t.leader === before.leader &&
          (t.term > before.term || t.tablet.epoch > before.tablet.epoch);
      if (better) told.set(t.tablet.tablet_id, t);
    }
  }
  const list = [...told.values()].map((t) => {
    const answering = t.tablet.replicas.filter((r) => alive.has(r.node_id)).length;
    return {
      id: t.tablet.tablet_id, told: t, leader: t.leader ? t.node_id : 0,
      from: position(tables, t.tablet.start_table, t.tablet.start_row),
      to: t.tablet.end_unbounded ? "the end"
        : position(tables, t.tablet.end_table, t.tablet.end_row),
      size: t.size_bytes, load: t.load,
      trouble: (t.leader ? 0 : 2) + (answering < t.tablet.replicas.length ? 1 : 0),
      replicas: t.tablet.replicas.map((r) => ({
        node: r.node_id, learner: r.learner, answers: alive.has(r.node_id),
        behind: t.replicas.find((p) => p.replica.replica_id === r.replica_id)?.snapshot ?? false,
      })),
    };
  });
  const key = (t) => [t.told.tablet.start_table, bytes(t.told.tablet.start_row)];
  list.sort((a, b) => {
    const [[at, ar], [bt, br]] = [key(a), key(b)];
    return at - bt || (ar < br ? -1 : ar > br ? 1 : 0);
  });
  list.forEach((t, i) => { t.at = i; });
  return list;
}

function replica(status, r) {
  const notes = [r.learner && "learner", r.behind && "needs a snapshot", !r.answers && "(away)"];
  const text = [nodeName(status, r.node), ...notes.filter(Boolean)].join(" ");
  return element("span", {class: r.answers ? null : "critical strong"}, text);
}

export function tablets(known, question) {
  const all = gather(known);
  const order = orders[question.get("by")] ? question.get("by") : "range";
  const shown = [...all].sort(orders[order].compare).slice(0, most);
  const busiest = Math.max(1, ...all.map((t) => t.load));
  const largest = Math.max(1, ...all.map((t) => t.size));
  return [
    element("h2", {}, plural(all.length, "tablet")),
    element("p", {}, "Sorted ", Object.entries(orders).map(([name, o], i) => [i > 0 ? " · " : "",
      element("a", {href: `#/tablets?by=${name}`, "data-key": `by ${name}`,
        "aria-current": name === order ? "true" : null,
        class: name === order ? "strong" : null}, o.title)]),
    shown.length < all.length && `. The first ${most} are shown: percolator tablet ls has all.`),
    table("Tablets", [
      "id", "~from", "~before", "leader",
      "~replicas on nodes", "#size", "#operations/s",
      "#locks", "#to collect", "#applied",
      "#oldest lock",
    ], shown.map((t) => [
      String(t.id), t.from, t.to,
      t.leader ? nodeName(known.status, t.leader) : {value: "no leader", class: "critical strong"},
      {value: t.replicas.map((r, i) => [i > 0 ? ", " : "", replica(known.status, r)])},
      {value: [size(t.size), bar(t.size / largest)]},
      {value: [rate(t.load), bar(t.load / busiest)]},
      count(t.told.locks), count(t.told.garbage), count(t.told.applied_index),
      since(t.told.oldest_lock_ts, known.status.unix_ms),
    ])),
    element("h2", {}, "To do something"),
    element("p", {}, "All about one: ", element("code", {}, "percolator tablet describe ID"), "."),
  ];
}

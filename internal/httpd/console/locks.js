// Locks and conflicts: where transactions stand in each other's way.

import {element, table} from "./dom.js";
import {count, millis, nodeName, since} from "./format.js";
import {rowColumns, rows} from "./observers.js";
import {gather} from "./tablets.js";

// oldLock is from when on a lock is of nobody who lives, in milliseconds.
const oldLock = 60_000;

export function locks(known) {
  const {status} = known;
  const held = gather(known).filter((t) => t.told.locks > 0)
    .sort((a, b) => (a.told.oldest_lock_ts || Infinity) - (b.told.oldest_lock_ts || Infinity));
  return [
    element("h2", {}, "Locks held now"),
    element("p", {class: "quiet"}, "Of each tablet: locks and reservations, and the age " +
      "of the transaction with the oldest lock. A lock lives for some seconds; whoever meets " +
      "an older one resolves it."),
    table("Locks", [
      "tablet", "~from", "leader", "#locks",
      "#oldest",
    ], held.map((t) => [String(t.id), t.from,
      t.leader ? nodeName(status, t.leader) : "no leader", count(t.told.locks), {
      value: since(t.told.oldest_lock_ts, status.unix_ms),
      class: t.told.oldest_lock_ts > 0 && status.unix_ms - millis(t.told.oldest_lock_ts) > oldLock
        ? "critical strong" : "",
    }])),
    element("h2", {}, "Rows whose observers conflict"),
    table("Rows whose observers conflict", rowColumns, rows(status)),
    element("h2", {}, "To do something"),
    element("p", {}, "Which locks: ", element("code", {}, "percolator lock ls"),
      "; end those of dead transactions: ",
      element("code", {}, "percolator lock resolve --all"),
      "; what a row's versions and locks are: ",
      element("code", {}, "percolator history TABLE ROW"), "."),
  ];
}

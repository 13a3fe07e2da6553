// The Locks page: held locks and conflicts.

import {address, get} from "./ask.js";
import {element, table, whole} from "./dom.js";
import {bytes, count, millis, nodeName, plural, since, span} from "./format.js";
import {rowColumns, rows} from "./observers.js";
import {command} from "./session.js";
import {position} from "./tablets.js";

// oldLock is the age at which a lock's owner counts as dead, in milliseconds.
const oldLock = 60_000;

// contended returns the table of the rows with the most conflicts, or the error.
async function contended(known) {
  const head = element("h2", {}, "Rows where transactions conflict");
  let found;
  try {
    found = await get("contended");
  } catch (failure) {
    return [head, element("p", {class: "warning"}, failure.message)];
  }
  return [
    head,
    element("p", {class: "quiet"}, "Writes refused because of a newer write or another transaction's " +
    `lock, in the last ${span(found.lately_ms)} and since the rows' leaders started. Spread a row ` +
    "with far more conflicts than the others over several rows, or update it in an observer. Only " +
    "the rows with the most conflicts are tracked: the last column bounds the error of the counts."),
    found.silent.map((why) => element("p", {class: "warning"}, `Missing: ${why}`)),
    table("Rows where transactions conflict", ["~row", "#recent", "#conflicts", "#locked", "#error"],
      found.rows.map((r) => [
        {value: element("a", {"data-key": `contended ${r.table} ${bytes(r.row)}`, href: address("cells",
          {table: known.tables.get(r.table) ?? r.table, row: bytes(r.row)}),
        }, position(known.tables, r.table, r.row))},
        count(r.lately), count(r.conflicts), count(r.locked), r.at_most > 0 ? `at most ${count(r.at_most)}` : "none"]),
      "none"),
  ];
}

export async function locks(known) {
  const {status} = known;
  const held = await get("tablets", {by: "lock", locked: ""});
  return [
    element("h2", {}, "Locks held now"),
    element("p", {class: "quiet"}, "Locks and reservations of each tablet, and the age " +
    "of the transaction with the oldest lock. A lock lives for about 10 s; a transaction that " +
    "encounters an expired one resolves it."),
    held.list.length < held.found && element("p", {},
      `The ${count(held.list.length)} with the oldest of ${plural(held.found, "tablet")}.`),
    table("Locks", [
      "~from", "~leader", "#locks",
      "#oldest",
    ], held.list.map((t) => [
      position(known.tables, t.start_table, t.start_row),
      t.leader_node ? whole(nodeName(status, t.leader_node)) : "no leader", count(t.locks), {
      value: since(t.oldest_lock_ts, status.unix_ms),
      class: t.oldest_lock_ts > 0 && status.unix_ms - millis(t.oldest_lock_ts) > oldLock
        ? "critical strong" : "",
    }]), "none"),
    await contended(known),
    element("h2", {}, "Rows whose observers conflict"),
    table("Rows whose observers conflict", rowColumns, rows(status), "none"),
    element("h2", {}, "Commands"),
    element("p", {}, "List locks: ", command("percolator lock ls"),
    "; resolve those of dead transactions: ",
      command("percolator lock resolve --all"),
      "; show a row's versions and locks: ",
      command("percolator history TABLE ROW"), "."),
  ];
}

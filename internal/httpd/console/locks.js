// Locks and conflicts: where transactions stand in each other's way.

import {address, get} from "./ask.js";
import {element, table} from "./dom.js";
import {bytes, count, millis, nodeName, plural, since, span} from "./format.js";
import {rowColumns, rows} from "./observers.js";
import {position} from "./tablets.js";

// oldLock is from when on a lock is of nobody who lives, in milliseconds.
const oldLock = 60_000;

// contended are the rows that were in the way most, or why that is not told.
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
    element("p", {class: "quiet"}, "Writes that were refused, in " +
      `the last minutes (${span(found.lately_ms)}) and since the rows' leaders began: a newer ` +
      "write was there, or another transaction's lock. A row that leads by far is hot: spread it " +
      "over several, or add to it in an observer. Only the worst rows are remembered: of a row's " +
      "counts so many may be others' as the last column says."),
    found.silent.map((why) => element("p", {class: "warning"}, `Missing: ${why}`)),
    table("Rows where transactions conflict", ["~row", "#lately", "#conflicts", "#locked", "#perhaps others'"],
      found.rows.map((r) => [
        {value: element("a", {"data-key": `contended ${r.table} ${bytes(r.row)}`, href: address("cells",
          {table: known.tables.get(r.table) ?? r.table, row: bytes(r.row)}),
        }, position(known.tables, r.table, r.row))},
        count(r.lately), count(r.conflicts), count(r.locked), r.at_most > 0 ? `at most ${count(r.at_most)}` : "none"]),
      "none was refused"),
  ];
}

export async function locks(known) {
  const {status} = known;
  const held = await get("tablets", {by: "lock", locked: ""});
  return [
    element("h2", {}, "Locks held now"),
    element("p", {class: "quiet"}, "Of each tablet: locks and reservations, and the age " +
      "of the transaction with the oldest lock. A lock lives for some seconds; whoever meets " +
      "an older one resolves it."),
    held.list.length < held.found && element("p", {},
      `The ${count(held.list.length)} with the oldest of ${plural(held.found, "tablet")}.`),
    table("Locks", [
      "tablet", "~from", "~leader", "#locks",
      "#oldest",
    ], held.list.map((t) => [String(t.tablet_id),
      position(known.tables, t.start_table, t.start_row),
      t.leader_node ? nodeName(status, t.leader_node) : "no leader", count(t.locks), {
      value: since(t.oldest_lock_ts, status.unix_ms),
      class: t.oldest_lock_ts > 0 && status.unix_ms - millis(t.oldest_lock_ts) > oldLock
        ? "critical strong" : "",
    }]), "no tablet holds any"),
    await contended(known),
    element("h2", {}, "Rows whose observers conflict"),
    table("Rows whose observers conflict", rowColumns, rows(status), "none"),
    element("h2", {}, "To do something"),
    element("p", {}, "Which locks: ", element("code", {}, "percolator lock ls"),
      "; end those of dead transactions: ",
      element("code", {}, "percolator lock resolve --all"),
      "; what a row's versions and locks are: ",
      element("code", {}, "percolator history TABLE ROW"), "."),
  ];
}

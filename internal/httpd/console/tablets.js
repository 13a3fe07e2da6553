// The Tablets page: ranges, replicas, leaders, size and load. A cluster may have thousands of
// tablets, so the node sends one page at a time.

import {address, get} from "./ask.js";
import {field} from "./cells.js";
import {bar, element, table, whole} from "./dom.js";
import {bytes, count, nodeName, plural, rate, since, size} from "./format.js";
import {command} from "./session.js";

const orders = {load: "by load", size: "by size", trouble: "by trouble", range: "by range"};

// position formats a bound of a tablet as the command line does.
export function position(tables, table, row) {
  const text = bytes(row);
  if (table === 0 && text === "") return "(meta)";
  const name = tables.get(table) ?? `table ${table}`;
  return text === "" ? name : `${name}/${text}`;
}

// hiddenKeys returns a note if the answer has numbers in place of keys.
export const hiddenKeys = (found) => found.keys_hidden && element("p", {class: "quiet"},
  "Keys are shown after a login; until then #N stands for a key, in their order.");

// ends returns a tablet's lower and upper bound.
function ends(tables, t) {
  return [position(tables, t.start_table, t.start_row),
    t.end_unbounded ? "the end" : position(tables, t.end_table, t.end_row)];
}

function replica(status, r) {
  const answers = status.nodes.some((n) => n.node.node_id === r.node_id && n.status !== null);
  const notes = [r.learner && "learner", r.snapshot && "needs a snapshot", !answers && "(away)"];
  return element("span", {class: answers ? null : "critical strong"},
    whole(nodeName(status, r.node_id)), notes.filter(Boolean).map((note) => ` ${note}`));
}

// form returns the search form.
function form(question) {
  const input = element("input", {
    name: "find", value: question.get("find") ?? "", "data-key": "find", size: 40,
    spellcheck: "false", autocomplete: "off",
  });
  const out = element("form", {class: "fields"}, field("ID, TABLE or TABLE/ROW", input),
    element("button", {"data-key": "go"}, "Find"));
  out.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address("tablets", {by: question.get("by"), find: input.value || null});
  });
  return out;
}

// pages returns the links to other pages.
function pages(found, question) {
  const last = found.skipped + found.list.length;
  const link = (name, skip) => element("a", {"data-key": name, href: address("tablets",
    {by: question.get("by"), find: question.get("find"), skip: skip || null})}, name);
  return element("p", {}, found.list.length > 0 && `${count(found.skipped + 1)} to ${count(last)} of `,
    count(found.found), found.found < found.tablets && ", matching",
    found.skipped > 0 && [" · ", link("first tablets", 0),
      " · ", link("previous tablets", Math.max(0, found.skipped - found.page))],
    last < found.found && [" · ", link("next tablets", last)]);
}

export async function tablets({status, tables}, question) {
  const order = orders[question.get("by")] ? question.get("by") : "load";
  const head = (n) => [element("h2", {}, n === null ? "Tablets" : plural(n, "tablet")), form(question)];
  let found;
  try {
    found = await get("tablets",
      {by: order, find: question.get("find"), skip: question.get("skip")});
  } catch (failure) {
    return [...head(null), element("p", {class: "critical", role: "alert"}, failure.message)];
  }
  return [
    ...head(found.tablets),
    hiddenKeys(found),
    element("p", {}, "Sorted ", Object.entries(orders).map(([by, title], i) => [i > 0 ? " · " : "",
      element("a", {href: address("tablets", {by, find: question.get("find")}),
        "data-key": `by ${by}`, "aria-current": by === order ? "true" : null,
        class: by === order ? "strong" : null}, title)]), "."),
    pages(found, question),
    table("Tablets", [
      "id", "~from", "~before", "~leader",
      "~replicas on nodes", "#size", "#operations/s",
      "#locks", "#old versions", "#log entries",
      "#oldest lock",
    ], found.list.map((t) => [
      String(t.tablet_id), ...ends(tables, t),
      t.leader_node ? whole(nodeName(status, t.leader_node))
        : {value: "no leader", class: "critical strong"},
      {value: t.replicas.map((r, i) => [i > 0 ? ", " : "", replica(status, r)])},
      {value: [size(t.size_bytes), bar(t.size_bytes / Math.max(1, found.largest_size))]},
      {value: [rate(t.load), bar(t.load / Math.max(1, found.largest_load))]},
      count(t.locks), count(t.garbage), count(t.applied_index),
      since(t.oldest_lock_ts, status.unix_ms),
    ])),
    element("h2", {}, "Commands"),
    element("p", {}, "Describe a tablet: ", command("percolator tablet describe ID"),
    "; split an overloaded one: ", command("percolator tablet split TABLE ROW"),
    "; move its leadership: ", command("percolator tablet move ID --to NODE --leader"), "."),
  ];
}

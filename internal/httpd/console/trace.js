// The Trace page: the transaction behind a change, the observer runs that it triggered, their
// writes, and so on.

import {address, get} from "./ask.js";
import {at, field, tableField} from "./cells.js";
import {element} from "./dom.js";
import {prose} from "./findings.js";
import {bytes, message, millis, plural, shell} from "./format.js";
import {command} from "./session.js";

const states = {
  committed: ["good", "committed"], committing: ["info", "committing"],
  waiting: ["warning", "waiting"], failing: ["warning strong", "failing"],
  parked: ["critical strong", "parked"], not_run: ["quiet", "no known run"],
};

function form(known, question) {
  const select = tableField(known, question);
  const [row, column] = ["row", "column"].map((name) => element("input", {
    name, value: question.get(name) ?? "", "data-key": name, size: 24, spellcheck: "false",
    autocomplete: "off",
  }));
  const out = element("form", {class: "fields"}, field("Table", select), field("Row", row),
    field("Column (empty: newest change)", column),
    element("button", {"data-key": "go"}, "Trace"));
  out.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address("trace",
      {table: select.value, row: row.value, column: column.value || null});
  });
  return out;
}

// cell links to the row of a cell.
function cell(c) {
  return element("a", {
    href: address("cells", {table: c.table, row: bytes(c.row)}),
    "data-key": `cell ${c.table} ${bytes(c.row)} ${bytes(c.column)}`,
  }, `${c.table}/${bytes(c.row)}.${bytes(c.column)}`);
}

// when draws a step's position in the chain's time span.
function when(step, begin, end) {
  if (!step.start_ts || end <= begin) return null;
  const from = (millis(step.start_ts) - begin) / (end - begin);
  const part = (step.took_ms ?? 0) / (end - begin);
  const mark = element("span");
  mark.style.marginLeft = `${(98 * from).toFixed(2)}%`;
  mark.style.width = `${Math.max(1.5, 98 * part).toFixed(2)}%`;
  return element("div", {class: "when", "aria-hidden": "true"}, mark);
}

function details(step) {
  return [
    step.start_ts && [element("span", {class: "quiet"}, "started "), at(step.start_ts)],
    step.after_ms !== undefined && `${step.after_ms} ms after the change was committed`,
    step.took_ms !== undefined && `took ${step.took_ms} ms`,
    step.wrote && ["wrote ", step.wrote.slice(0, 8).map((w, i) => [i > 0 ? ", " : "", cell(w),
      w.kind === "delete" ? " (deleted)" : ""]),
    step.wrote.length > 8 && ` and ${step.more ? "at least " : ""}${step.wrote.length - 8} more`],
    ...step.notes.map((note) => element("span", {class: step.attempts ? "warning" : null}, message(note))),
  ].filter(Boolean).map((d, i) => [i > 0 ? " · " : "", d]);
}

// branch returns a step and the steps that it triggered.
function branch(step, steps, begin, end) {
  const [state, word] = states[step.state] ?? ["", step.state];
  const children = steps.filter((s) => s.parent === step.step);
  return element("li", {},
    element("div", {class: step.asked ? "step asked" : "step"},
      element("p", {}, element("span", {class: "strong"},
        step.observer ? step.observer : "Transaction"),
      step.on && [" on ", cell(step.on)], " ", element("span", {class: state}, word),
      step.asked && element("span", {class: "quiet"}, " (requested)")),
      element("p", {}, details(step)), when(step, begin, end)),
    children.length > 0 && element("ul", {}, children.map((s) => branch(s, steps, begin, end))));
}

export async function trace(known, question) {
  const [name, row, column] = ["table", "row", "column"].map((key) => question.get(key));
  const head = [element("h2", {}, "Trace of a change"), form(known, question)];
  if (row === null || name === null) {
    return [...head, element("p", {class: "quiet"}, "The transaction that wrote a cell, the observers " +
    "that ran for it, and their writes. The page of a row, under Cells, links here.")];
  }
  let found;
  try {
    found = await get("trace", {table: name, row, column, at: question.get("at")});
  } catch (failure) {
    return [...head, element("p", {class: "critical", role: "alert"}, failure.message)];
  }
  const times = found.steps.filter((s) => s.start_ts).map((s) => millis(s.start_ts));
  const ends = found.steps.filter((s) => s.commit_ts).map((s) => millis(s.commit_ts));
  const begin = Math.min(...times), end = Math.max(...times, ...ends);
  return [
    ...head,
    element("p", {}, plural(found.steps.length, "step"), `, ${end - begin} ms from the first ` +
      "transaction to the last commit."),
    found.notes.map((note) => element("p", {class: "warning"}, message(note))),
    element("ul", {class: "tree"}, found.steps.filter((s) => !s.parent)
      .map((s) => branch(s, found.steps, begin, end))),
    element("h2", {}, "Commands"),
    element("p", {}, "Also search other rows for writes: ", command(
      `percolator trace ${shell(name)} ${row.startsWith('"') ? "--escape go " : ""}${shell(row)} ` +
      "--search TABLE"),
    found.next && ["; ", prose(found.next)], "."),
  ];
}

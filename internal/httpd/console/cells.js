// The Cells page: rows of a table as of a time, and one row with all its entries.

import {address, get} from "./ask.js";
import {element, table, whole} from "./dom.js";
import {bytes, compare, count, message, millis, moment, nodeName, plural, shell, span} from "./format.js";
import {failure, replayRow} from "./observers.js";
import {command} from "./session.js";

// at formats a timestamp: its time in UTC and its number.
export function at(timestamp) {
  return [`${moment(millis(timestamp))} `, element("small", {class: "quiet"}, String(timestamp))];
}

// value formats a value that may be truncated; of is its full size in bytes.
function value(v, of) {
  const text = bytes(v);
  const whole = typeof v === "string" ? new TextEncoder().encode(v).length
    : atob(v.base64).length;
  return element("code", {}, text === "" ? '""' : text, whole < of ? `… (${count(of)} bytes)` : null);
}

// field returns a form field with its label.
export function field(label, input) {
  return element("label", {}, element("span", {}, label), input);
}

// tableField returns a selector of tables.
export function tableField(known, question) {
  const chosen = question.get("table") ?? known.names[0] ?? "";
  const names = known.names.includes(chosen) ? known.names : [...known.names, chosen];
  return element("select", {name: "table", "data-key": "table"}, names.map((name) => (
    element("option", {value: name, selected: name === chosen ? "" : null}, name))));
}

// form returns the form for table and prefix. It keeps the address's time.
function form(known, question) {
  const select = tableField(known, question);
  const prefix = element("input", {
    name: "prefix", value: question.get("prefix") ?? "", "data-key": "prefix", size: 30,
    spellcheck: "false", autocomplete: "off",
  });
  const out = element("form", {class: "fields"}, field("Table", select),
    field("Row prefix", prefix), element("button", {"data-key": "go"}, "Show rows"));
  out.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address("cells",
      {table: select.value, prefix: prefix.value || null, at: question.get("at")});
  });
  return out;
}

// timeline returns a slider over the history that all nodes keep, in seconds before now.
function timeline(known, question) {
  const now = known.status.unix_ms;
  const bounds = known.status.nodes.map((r) => r.status?.history?.bound ?? 0).filter((b) => b > 0);
  const from = bounds.length ? Math.max(...bounds.map(millis)) : now - 3600_000;
  const asked = Number(question.get("at") ?? now);
  const most = Math.max(1, Math.ceil((now - from) / 1000));
  const said = element("output", {});
  const slider = element("input", {
    type: "range", min: -most, max: 0, step: 1, "data-key": "time",
    "aria-label": "Time, in seconds before now",
    value: Math.max(-most, Math.min(0, Math.round((asked - now) / 1000))),
  });
  const then = () => now + 1000 * Number(slider.value);
  const say = () => {
    said.textContent = slider.value === "0" ? "now"
      : `${moment(then()).slice(0, 19)} UTC, ${span(now - then())} ago`;
  };
  say();
  slider.addEventListener("input", say);
  slider.addEventListener("change", () => {
    const go = Object.fromEntries(question);
    delete go.after;
    location.hash = address("cells", {...go, at: slider.value === "0" ? null : then()});
  });
  return element("div", {class: "timeline"}, element("span", {}, "As of"), slider, said);
}

async function list(known, question) {
  const name = question.get("table") ?? known.names[0];
  const head = [element("h2", {}, "Cells"), form(known, question)];
  if (name === undefined) return [...head, element("p", {class: "quiet"}, "There are no tables.")];
  let found;
  try {
    found = await get("rows", {
      table: name, prefix: question.get("prefix"), after: question.get("after"),
      at: question.get("at"),
    });
  } catch (failure) {
    return [...head, timeline(known, question),
      element("p", {class: "critical", role: "alert"}, failure.message)];
  }
  const rows = found.rows.flatMap((r) => r.cells.map((c, i) => [
    i > 0 ? "" : {value: element("a", {
      href: address("cells", {table: name, row: bytes(r.row)}), "data-key": `row ${bytes(r.row)}`,
    }, bytes(r.row) || '""')},
    bytes(c.column), {value: value(c.value, c.bytes)}, {value: at(c.commit_ts)},
  ]).concat(r.more ? [["", {value: "more columns", class: "quiet"}, "", ""]] : []));
  const last = found.rows.at(-1);
  return [
    ...head, timeline(known, question),
    table("Rows", ["~row", "~column", "~value", "committed at, UTC"], rows,
      "no rows with this prefix at this time"),
    element("p", {}, plural(found.rows.length, "row"), " as of ", at(found.at_ts),
      found.more && [" · ", element("a", {"data-key": "next", href: address("cells",
        {...Object.fromEntries(question), table: name, after: bytes(last.row)})}, "next rows")]),
  ];
}

// asOf returns the row as read at a timestamp, ignoring locks.
function asOf(versions, then) {
  const newest = new Map();
  for (const v of versions) {
    if (compare(v.commit_ts, then) <= 0 && !newest.has(bytes(v.column))) {
      newest.set(bytes(v.column), v);
    }
  }
  return table("The row at this time", ["~column", "~value", "committed at, UTC"],
    [...newest].sort().filter(([, v]) => v.kind === "put").map(([column, v]) => [
      column, {value: shown(v)}, {value: at(v.commit_ts)}]), "no cells at this time");
}

// shown formats the value that a version wrote.
function shown(v) {
  if (v.kind === "delete") return element("span", {class: "quiet"}, "deleted");
  if (v.value === undefined) return element("span", {class: "quiet"}, "collected");
  return value(v.value, v.bytes);
}

// steps returns a slider over the row's commit timestamps.
function steps(versions) {
  const times = [...new Set(versions.map((v) => String(v.commit_ts)))].sort(compare);
  if (times.length === 0) return asOf([], 0);
  const place = element("div"), said = element("output", {});
  const slider = element("input", {
    type: "range", min: 0, max: times.length - 1, step: 1, value: times.length - 1,
    "data-key": "change", "aria-label": "Changes of the row, oldest to newest",
  });
  const show = () => {
    const then = times[slider.value];
    said.replaceChildren(`change ${Number(slider.value) + 1} of ${times.length}, `,
      ...at(then).map((part) => part));
    slider.setAttribute("aria-valuetext", moment(millis(then)));
    place.replaceChildren(asOf(versions, then));
  };
  show();
  slider.addEventListener("input", show);
  return [element("div", {class: "timeline"}, element("span", {}, "As of"), slider, said), place];
}

// worker names the holder of a lock.
function worker(status, w) {
  return w.node === 0 ? "a client" : {value: whole(nodeName(status, w.node))};
}

async function row(known, question) {
  const [name, key] = [question.get("table"), question.get("row")];
  const found = await get("row", {table: name, row: key});
  const of = (...groups) => found.entries.filter((e) => groups.includes(e.group));
  // A long value has an entry of its own, at its transaction's start timestamp.
  const long = new Map(of("data").map((e) => [`${e.start_ts} ${bytes(e.column)}`, e]));
  const acks = new Map(found.entries.filter((e) => e.class === "ack" && e.group === "write")
    .map((e) => [String(e.start_ts), bytes(e.column)]));
  const versions = of("write").filter((e) => e.class === "data").map((e) => {
    const apart = e.value === undefined ? long.get(`${e.start_ts} ${bytes(e.column)}`) : undefined;
    return apart ? {...e, value: apart.value, bytes: apart.bytes} : e;
  }).sort((a, b) => compare(b.commit_ts, a.commit_ts));
  // A notification is at the observed cell, or, of an observer with entries of its own, at its
  // acknowledgment.
  const column = (e) => (e.class === "ack"
    ? `${e.group === "notify" ? "notification" : "ack"} of ${bytes(e.column)}` : bytes(e.column));
  const observer = (e) => (e.class === "ack" ? bytes(e.column)
    : known.status.observers.find(({info}) => info.table_name === name && !info.own_entry &&
      bytes(info.column) === bytes(e.column))?.info.name);
  const stopped = of("notify").filter((e) => e.parked_ts);
  return [
    element("h2", {}, `${name}/${key}`),
    stopped.length > 0 && element("ul", {class: "findings"}, stopped.map((e) => element("li",
      {class: "warning"}, element("span", {class: "strong"}, `Parked: ${observer(e) ?? column(e)}`),
      ` after ${plural(e.attempts ?? 0, "failed run")}, at `, at(e.parked_ts),
      element("p", {}, failure(e.error ?? "")),
      observer(e) && element("p", {}, replayRow(observer(e), found.row ?? key))))),
    element("p", {}, element("a", {href: address("cells", {table: name}), "data-key": "back"},
      `Rows of ${name}`), found.more && ". The row has more entries than shown."),
    steps(versions),
    element("h2", {}, "Versions"),
    table("Versions", ["~column", "committed at, UTC", "started at, UTC", "#duration", "~value",
      "~written by"],
    versions.map((v) => [bytes(v.column), {value: at(v.commit_ts)}, {value: at(v.start_ts)},
      `${millis(v.commit_ts) - millis(v.start_ts)} ms`, {value: shown(v)},
      {value: element("a", {"data-key": `trace ${v.commit_ts} ${bytes(v.column)}`,
        href: address("trace", {table: name, row: key, column: bytes(v.column), at: v.commit_ts})},
      acks.has(String(v.start_ts)) ? `a run of ${acks.get(String(v.start_ts))}`
        : "a transaction")}])),
    element("h2", {}, "Locks"),
    table("Locks of the row", ["~column", "started at, UTC", "holder", "kind", "~primary", "expires, UTC"],
      of("lock", "intent").map((e) => [column(e), {value: at(e.start_ts)}, worker(known.status, e.worker),
        e.group === "intent" ? "reservation" : e.kind,
        e.primary ? `${e.primary.table}/${bytes(e.primary.row)}.${bytes(e.primary.column)}` : "itself",
        {value: moment(millis(e.expiry)), class: compare(e.expiry, found.at_ts) < 0
          ? "critical strong" : null}])),
    element("h2", {}, "Observers"),
    table("Observers of the row", ["~column", "state", "at, UTC", "#attempts", "~error"],
      found.entries.filter((e) => e.group === "notify" || e.class === "ack" && e.group === "write")
        .map((e) => [column(e),
          e.group !== "notify" ? "acknowledged" : e.parked_ts
            ? {value: "parked", class: "critical strong"} : {value: "waiting", class: "warning"},
          {value: at(e.parked_ts ?? e.ts)}, String(e.attempts ?? ""), message(e.error ?? "")])),
    element("h2", {}, "Commands"),
    element("p", {}, "As text: ", command(
      `percolator history ${shell(name)} ${key.startsWith('"') ? "--escape go " : ""}${shell(key)}`),
    "."),
  ];
}

// cells returns the page.
export function cells(known, question) {
  return question.has("row") ? row(known, question) : list(known, question);
}

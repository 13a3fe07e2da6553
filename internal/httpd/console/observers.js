// The Observers page: waiting work, counters and problems.

import {address, get} from "./ask.js";
import {element, table} from "./dom.js";
import {base64, bytes, count, message, millis, moment, plural, shell, since, span} from "./format.js";
import {progress} from "./jobs.js";
import {action} from "./session.js";

// state returns an observer's state, with the command line's words and precedence.
function state(o) {
  if (o.info.retired) return {value: "retiring", class: "quiet"};
  if (o.info.paused) return {value: "paused", class: "warning strong"};
  if (!o.linked) return {value: "unlinked", class: "critical strong"};
  return {value: "running", class: "good"};
}

// commands returns the commands for an observer.
function commands(o) {
  const name = shell(o.info.name);
  const list = [o.info.paused ? `percolator observer resume ${name}` : `percolator observer pause ${name}`];
  if (!o.info.retired && !o.info.paused) list.push(`percolator observer limit ${name} N`);
  if (o.parked > 0) {
    list.push(`percolator notify ls --parked --observer ${name}`,
      `percolator notify replay ${name} --all-parked`);
  }
  return list;
}

// buttons returns the buttons for an observer.
function buttons(o, replaying) {
  const {name, paused, retired} = o.info;
  const control = (label, body, seen, field = null) => action(label, name, "observer-control", body, {
    field, seen: (status, sent) => status.observers.some(
      ({info}) => info.name === name && seen(info, sent))});
  const replay = (label, act) => action(label, name, "observer-replay", {name, action: act}, {
    seen: (status) => Boolean(job(status, name)) !== replaying});
  return [
    !retired && control(paused ? "Resume" : "Pause", {name, paused: !paused},
      (info) => info.paused !== paused),
    !retired && control("Limit", (limit) => ({name, limit}), (info, sent) => info.limit === sent.limit,
      {label: "Concurrent runs in each process; 0: as registered", value: o.info.limit}),
    o.parked > 0 && action("Replay parked", name, "notify-replay", {name}),
    !retired && (replaying ? replay("Cancel the replay", "ACTION_CANCEL")
      : replay("Replay every row", "ACTION_START")),
  ];
}

// job returns the running replay of an observer, if any.
function job(status, name) {
  return status.jobs.find((j) => j.kind === "backfill" && j.id === name);
}

// replay formats the progress of the last replay.
function replay(status, o) {
  const b = o.backfill, now = job(status, o.info.name);
  if (b === null) return "—";
  if (b.error !== "") return {value: `${b.error}, ${count(b.rows)} rows`, class: "critical"};
  if (now) return {value: progress(now)};
  return `${b.cancelled ? "cancelled" : "done"}, ${count(b.rows)} rows`;
}

// trouble returns the problem of a row.
function trouble(r) {
  if (r.overdue) return {value: "past its deadline, cannot be cancelled", class: "critical"};
  if (r.retries > 0) {
    return {value: `${count(r.retries)} consecutive failed runs`, class: "warning"};
  }
  return r.runs > 0 ? `${count(r.runs)} runs within 10 s` : "long run";
}

// rows returns the rows whose runs take too long or keep failing.
export function rows(status) {
  return status.observers.flatMap((o) => (o.status?.rows ?? []).map((r) => [
    o.info.name, bytes(r.row),
    r.running_ms > 0 ? {value: span(r.running_ms), class: r.overdue ? "critical" : ""} : "—",
    trouble(r),
  ]));
}

export const rowColumns = [
  "~observer", "~row", "#running for",
  "~problem",
];

// parked returns a page of the chosen observer's parked notifications, or the error; nothing if
// no observer has any.
async function parked(status, question) {
  const some = status.observers.filter((o) => o.parked > 0);
  const chosen = status.observers.find((o) => o.info.name === question.get("parked")) ?? some[0];
  if (chosen === undefined) return [];
  const {name, table_name: of} = chosen.info;
  const link = (text, key, parameters) => element("a",
    {"data-key": key, href: address("observers", parameters)}, text);
  const head = [
    element("h2", {}, `Parked: ${name}`),
    some.length > 1 && element("p", {}, "Observers: ", some.map((o, i) => [i > 0 ? " · " : "",
      link(`${o.info.name} (${count(o.parked)})`, `parked ${o.info.name}`, {parked: o.info.name})])),
    element("p", {class: "quiet"}, "Rows whose runs failed as often as allowed. They wait until they are " +
    "replayed or change again: fix the cause of the error first. Replay one: ",
    element("code", {}, `percolator notify replay ${shell(name)} ROW`)),
  ];
  let found;
  try {
    found = await get("parked", {observer: name, after: question.get("after")});
  } catch (failure) {
    return [...head, element("p", {class: "warning"}, failure.message)];
  }
  return [
    ...head,
    table("Parked", ["~row", "#failed runs", "#parked for", "changed, UTC", "~last error", "!action"],
      found.parked.map((p) => [
        {value: element("a", {"data-key": `parked row ${bytes(p.row)}`,
          href: address("cells", {table: of, row: bytes(p.row)})}, bytes(p.row) || '""')},
        count(p.attempts), since(p.parked_ts, millis(found.at_ts)), moment(millis(p.ts)),
        {value: element("span", {class: "message"}, message(p.error))},
        {value: action("Replay", `${name}, row ${bytes(p.row)}`, "row-replay",
          {name, row: base64(p.row)})},
      ]), found.more ? "none on this page" : "none"),
    element("p", {}, plural(found.parked.length, "row"),
      question.has("after") && [" · ", link("first parked", "first parked", {parked: name})],
      found.more && [" · ", link("next parked", "next parked", {parked: name, after: bytes(found.last)})]),
    element("p", {}, action("Replay all", name, "notify-replay", {name})),
  ];
}

export async function observers({status}, question) {
  const bad = (n, how = "warning") => (n > 0 ? {value: count(n), class: `${how} strong`} : "0");
  const list = status.observers.map((o) => {
    const s = o.status;
    const done = (name) => (s ? count(s[name]) : "—");
    const {value, class: look} = state(o);
    return [
      {value: [o.info.name, element("small", {class: "quiet"},
        `${o.info.table_name}/${bytes(o.info.column)}, ${o.info.weak ? "weak" : "strong"}`)]},
      {value: [element("span", {class: look}, value), element("small", {class: "quiet"},
        `in ${plural(o.nodes.length, "process")}` +
        (o.silent.length > 0 ? `, ${count(o.silent.length)} silent` : ""))]},
      count(o.notifications + o.intents), since(o.oldest_ts, status.unix_ms),
      s ? `${s.running}${s.limit ? ` of ${s.limit * Math.max(1, o.nodes.length)}` : ""}` : "—",
      done("runs"), done("commits"), done("conflicts"), s ? bad(s.failures) : "—", bad(o.parked),
      s ? bad(s.stuck, "critical") : "—", s ? bad(s.contended) : "—",
      replay(status, o),
    ];
  });
  return [
    element("h2", {}, "Observers"),
    status.observers_unavailable && element("p", {class: "critical"},
      `Counts are unavailable: ${status.observers_unavailable}`),
    table("Observers", [
      "~name and column", "state", "#waiting", "#oldest", "#running", "#runs", "#commits",
      "#conflicts", "#failures", "#parked", "#stuck", "#contended", "~replay of every row",
    ], list, status.observers_unavailable ? "unknown"
      : "none: programs register observers when they start their nodes"),
    element("p", {class: "quiet"}, "Waiting: changed rows without a run yet. Runs that conflict are " +
    "repeated automatically; runs that fail are repeated a limited number of times, then their row is " +
    "parked. Stuck: past the deadline and not cancellable. Contended: runs keep losing conflicts."),
    await parked(status, question),
    element("h2", {}, "Slow or failing rows"),
    table("Slow or failing rows", rowColumns, rows(status), "none"),
    element("h2", {}, "Commands"),
    table("Commands", ["~observer", "~command", "!action"],
      status.observers.map((o) => [o.info.name,
        {value: commands(o).map((c) => element("div", {}, element("code", {}, c)))},
        {value: buttons(o, Boolean(job(status, o.info.name)))}])),
  ];
}

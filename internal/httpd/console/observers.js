// The Observers page: all observers, or one with its last hour and its parked notifications.

import {address, get} from "./ask.js";
import {element, table} from "./dom.js";
import {base64, bytes, count, message, millis, moment, plural, shell, since, span} from "./format.js";
import {progress} from "./jobs.js";
import {observerCharts} from "./lines.js";
import {action, command} from "./session.js";

// state returns an observer's state, with the command line's words and precedence.
function state(o, now) {
  if (o.info.retired) return {value: "retiring", class: "quiet"};
  if (o.info.paused) return {value: "paused", class: "warning strong"};
  if (!o.linked) return {value: "unlinked", class: "critical strong"};
  if (o.status?.outside) return {value: outside(o.status.outside, now), class: "warning strong"};
  return {value: "running", class: "good"};
}

// outside describes an observer's wait for an external service.
function outside(w, now) {
  const next = w.next_ms > 0 ? `in ${span(w.next_ms)}` : "now";
  return `waiting for an outside service since ${moment(now - w.waited_ms)} UTC, next attempt ${next}` +
    (w.error === "" ? "" : `: ${message(w.error)}`);
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

// versions returns the registered versions of an observer, with the number of nodes of each if there are
// several.
function versions(o) {
  if (o.versions.length === 0) return "";
  const each = o.versions.map((v) => o.versions.length === 1 ? v.version
    : `${v.version} (${v.nodes.length} ${v.nodes.length === 1 ? "node" : "nodes"})`);
  return `, version ${each.join(", ")}`;
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
  const below = b.below_version === 0 ? "" : ` of ${count(b.examined)}, below version ${b.below_version}`;
  if (now) return {value: [progress(now), below && element("small", {class: "quiet"}, `${count(b.rows)} rows${below}`)]};
  return `${b.cancelled ? "cancelled" : "done"}, ${count(b.rows)} rows${below}`;
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

// failure formats a failed run's error, with its line breaks.
export function failure(text) {
  return element("span", {class: "message"}, message(text));
}

// parked returns a page of an observer's parked notifications, or the error; nothing if there are
// none.
async function parked(o, question) {
  const {name, table_name: of} = o.info;
  if (o.parked === 0 && !question.has("after")) return [];
  const link = (text, parameters) => element("a",
    {"data-key": text, href: address("observers", {name, ...parameters})}, text);
  const head = [
    element("h2", {}, "Parked"),
    element("p", {class: "quiet"}, "Rows whose runs failed as often as allowed. They wait until they are " +
    "replayed or change again: fix the cause of the error first."),
  ];
  let found;
  try {
    found = await get("parked", {observer: name, after: question.get("after")});
  } catch (problem) {
    return [...head, element("p", {class: "warning"}, problem.message)];
  }
  return [
    ...head,
    table("Parked", ["~row", "#failed runs", "#parked for", "changed, UTC", "~last error", "!action"],
      found.parked.map((p) => [
        {value: element("a", {"data-key": `parked row ${bytes(p.row)}`,
          href: address("cells", {table: of, row: bytes(p.row)})}, bytes(p.row) || '""')},
        count(p.attempts), since(p.parked_ts, millis(found.at_ts)), moment(millis(p.ts)),
        {value: failure(p.error)},
        {value: replayRow(name, p.row)},
      ]), found.more ? "none on this page" : "none"),
    element("p", {}, plural(found.parked.length, "row"),
      question.has("after") && [" · ", link("first parked", {})],
      found.more && [" · ", link("next parked", {after: bytes(found.last)})]),
    element("p", {}, action("Replay all", name, "notify-replay", {name})),
  ];
}

// replayRow returns the button that runs an observer again for one row.
export function replayRow(name, row) {
  return action("Replay", `${name}, row ${bytes(row)}`, "row-replay", {name, row: base64(row)});
}

// unknown formats a figure that no node reports as a dash, and marks a bad one.
const unknown = (s, name, how = null) => (s === null ? "—"
  : s[name] > 0 && how !== null ? {value: count(s[name]), class: `${how} strong`} : count(s[name]));

// figures returns an observer's figures by name.
function figures(o, status) {
  const s = o.status, answered = !status.observers_unavailable;
  return {
    waiting: answered ? count(o.notifications + o.intents) : "—",
    oldest: answered ? since(o.oldest_ts, status.unix_ms) : "—",
    running: s ? `${s.running}${s.limit ? ` of ${s.limit * Math.max(1, o.nodes.length)}` : ""}` : "—",
    runs: unknown(s, "runs"), conflicts: unknown(s, "conflicts"),
    failures: unknown(s, "failures", "warning"),
    parked: !answered ? "—" : o.parked > 0 ? {value: count(o.parked), class: "warning strong"} : "0",
    stuck: unknown(s, "stuck", "critical"), contended: unknown(s, "contended", "warning"),
  };
}

// where formats the processes that run an observer.
function where(o) {
  return `in ${plural(o.nodes.length, "process")}` +
    (o.silent.length > 0 ? `, ${count(o.silent.length)} silent` : "");
}

// one returns the page of one observer.
async function one(o, status, question) {
  const {value, class: look} = state(o, status.unix_ms), {name} = o.info, f = figures(o, status);
  const tile = (title, figure) => element("div", {}, element("dt", {}, title),
    element("dd", {class: figure.class}, figure.value ?? figure));
  let hour;
  try {
    const history = await get("history", {scope: "cluster", observer: name});
    hour = [history.silent.map((why) => element("p", {class: "warning"}, `Missing: ${why}`)),
      observerCharts(history)];
  } catch (problem) {
    hour = element("p", {class: "warning"}, problem.message);
  }
  const slow = rows({observers: [o]}).map((cells) => cells.slice(1));
  return [
    element("h2", {}, name),
    element("p", {}, element("span", {class: look}, value), ` ${where(o)}, on `,
      `${o.info.table_name}/${bytes(o.info.column)}, ${o.info.weak ? "weak" : "strong"}${versions(o)} · `,
      element("a", {href: "#/observers", "data-key": "all observers"}, "all observers")),
    element("p", {class: "do"}, buttons(o, Boolean(job(status, name)))),
    element("dl", {class: "tiles"}, tile("Waiting", f.waiting), tile("Oldest", f.oldest),
      tile("Running", f.running), tile("Failures", f.failures), tile("Parked", f.parked),
      tile("Replay of every row", replay(status, o))),
    element("h2", {}, "The last hour"), hour,
    await parked(o, question),
    slow.length > 0 && [element("h2", {}, "Slow or failing rows"),
      table("Slow or failing rows", rowColumns.slice(1), slow)],
    element("h2", {}, "Commands"),
    commands(o).map((c) => element("p", {}, command(c))),
  ];
}

export async function observers({status}, question) {
  const chosen = status.observers.find((o) => o.info.name === question.get("name"));
  if (chosen) return one(chosen, status, question);
  const list = status.observers.map((o) => {
    const {value, class: look} = state(o, status.unix_ms), f = figures(o, status), {name} = o.info;
    return [
      {value: [element("a", {href: address("observers", {name}), "data-key": `observer ${name}`}, name),
        element("small", {class: "quiet"},
          `${o.info.table_name}/${bytes(o.info.column)}, ${o.info.weak ? "weak" : "strong"}${versions(o)}`)]},
      {value: [element("span", {class: look}, value), element("small", {class: "quiet"}, where(o))]},
      f.waiting, f.oldest, f.running, f.runs, f.conflicts, f.failures, f.parked, f.stuck,
      f.contended, replay(status, o), {value: buttons(o, Boolean(job(status, name)))},
    ];
  });
  return [
    element("h2", {}, "Observers"),
    question.has("name") && element("p", {class: "warning"},
      `There is no observer ${question.get("name")}.`),
    status.observers_unavailable && element("p", {class: "critical"},
      `Counts are unavailable: ${status.observers_unavailable}`),
    table("Observers", [
      "~name and column", "~state", "#waiting", "#oldest", "#running", "#runs",
      "#conflicts", "#failures", "#parked", "#stuck", "#contended", "~replay of every row", "!control",
    ], list, status.observers_unavailable ? "unknown"
      : "none: programs register observers when they start their nodes"),
    element("p", {class: "quiet"}, "Waiting: changed rows without a run yet. Runs that conflict are " +
    "repeated automatically; runs that fail are repeated a limited number of times, then their row is " +
    "parked. Stuck: past the deadline and not cancellable. Contended: runs keep losing conflicts."),
    element("h2", {}, "Slow or failing rows"),
    table("Slow or failing rows", rowColumns, rows(status), "none"),
  ];
}

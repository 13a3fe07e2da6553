// The jobs: what the cluster does beside what clients ask for, and how far each has come.

import {bar, element, table} from "./dom.js";
import {count, nodeName, plural, shell, size, span} from "./format.js";

const states = {
  running: "info", done: "good", failed: "critical strong", silent: "warning strong",
  blocked: "warning strong", unfinished: "warning strong", cancelled: "quiet",
};

// progress is how much is done, and of what where that is known.
export function progress(job) {
  const extra = [job.bytes > 0 && size(job.bytes), job.records > 0 && `${count(job.records)} records`]
    .filter(Boolean).join(", ");
  const done = job.total > 0
    ? [`${count(job.done)} of ${count(job.total)} ${job.unit}`, bar(job.done / job.total)]
    : job.done > 0 ? `${count(job.done)} ${job.unit}` : "";
  return [done, extra && (job.done > 0 ? `, ${extra}` : extra)];
}

export function jobs({status, totals}) {
  const answered = status.nodes.filter((r) => r.status !== null);
  const placement = answered.map((r) => r.status.placement).find((p) => p !== null);
  const splits = answered.map((r) => r.status.splits).find((s) => s !== null);
  const collecting = answered.map((r) => r.status.history).filter((h) => h !== null);
  const ago = (ms) => (ms > 0 ? `${span(Math.max(0, status.unix_ms - ms))} ago` : "—");
  return [
    element("h2", {}, "Jobs"),
    table("Jobs", ["~what", "~of", "state", "~progress", "began", "last heard of", "~by", "~node", "~what to know"],
      status.jobs.map((j) => [
        j.kind, j.subject, {value: j.state, class: states[j.state] ?? null}, {value: progress(j)},
        ago(j.started_unix_ms), ago(j.seen_unix_ms), j.by,
        j.node_id === 0 ? "—" : nodeName(status, j.node_id), j.detail,
      ]), "none, and none within the last hour"),
    element("h2", {}, "Placement"),
    placement
      ? element("p", {}, `${placement.target} replicas of each tablet are wanted; ` +
        `${count(placement.under_replicated)} of ${plural(totals.tablets, "tablet")} lack some, ` +
        `${plural(placement.changing, "tablet")} are being changed; since this leader of meta: ` +
        `${count(placement.moves)} moves, ${count(placement.transfers)} leaders moved, ` +
        `${count(placement.failures)} steps repeated.`,
      placement.blocked.map((b) => element("span", {class: "warning"}, ` ${b}.`)))
      : element("p", {class: "quiet"}, "The node that leads meta does not answer."),
    element("h2", {}, "Splits"),
    element("p", {}, splits ? `Tablets of more than ${size(splits.max_bytes)}, or with more than ` +
      `${count(splits.max_load)} operations/s, are split while there are fewer than ` +
      `${count(splits.max_tablets)}: there are ${count(totals.tablets)}. Since this leader of meta ` +
      `${count(splits.by_size)} were split by size, ${count(splits.by_load)} by load.`
      : placement ? "The cluster's policy is that no tablet is split." : "The node that leads meta does not answer."),
    element("h2", {}, "Collection of old versions"),
    element("p", {}, `${count(collecting.reduce((n, h) => n + h.collected, 0))} entries collected ` +
      "since the leaders began; ",
    count(totals.garbage), " wait."),
    element("h2", {}, "To do something"),
    element("p", {}, "The same as text: ", element("code", {}, "percolator jobs"), ". Replays of observers' rows " +
      "are begun and cancelled at ", element("a", {href: "#/observers", "data-key": "observers"}, "Observers"),
    ", drains at ", element("a", {href: "#/nodes", "data-key": "nodes"}, "Nodes"),
    "; backups and restores by those who began them."),
    status.jobs.filter((j) => j.kind === "drain" && j.state === "blocked").map((j) => element("p", {},
      `To take back the drain of ${j.subject}: `, element("code", {},
        `percolator node drain ${shell(String(j.node_id))} --undo`))),
  ];
}

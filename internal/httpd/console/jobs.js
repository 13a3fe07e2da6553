// The Jobs page: the cluster's background work and its progress.

import {bar, element, table, whole} from "./dom.js";
import {bytes, count, nodeName, plural, shell, size, span} from "./format.js";
import {command} from "./session.js";

const states = {
  running: "info", done: "good", failed: "critical strong", silent: "warning strong",
  blocked: "warning strong", unfinished: "warning strong", cancelled: "quiet",
};

// progress formats how much of a job is done, out of the total if that is known.
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
    table("Jobs", ["~job", "~subject", "state", "~progress", "started", "last report", "~by", "~node", "~details"],
      status.jobs.map((j) => [
        j.kind, j.subject, {value: j.state, class: states[j.state] ?? null}, {value: progress(j)},
        ago(j.started_unix_ms), ago(j.seen_unix_ms), j.by,
        j.node_id === 0 ? "—" : whole(nodeName(status, j.node_id)), j.detail,
      ]), "none within the last hour"),
    element("h2", {}, "Placement"),
    placement
      ? element("p", {}, `Target: ${placement.target} replicas of each tablet; ` +
      `${count(placement.under_replicated)} of ${plural(totals.tablets, "tablet")} have fewer, ` +
      `${plural(placement.changing, "tablet")} changing. Since this node began to lead meta: ` +
      `${count(placement.moves)} replica moves, ${count(placement.transfers)} leader transfers, ` +
      `${count(placement.failures)} failed steps.`,
      placement.blocked.map((b) => element("span", {class: "warning"}, ` ${b}.`)))
      : element("p", {class: "quiet"}, "The node that leads meta does not answer."),
    element("h2", {}, "Splits"),
    element("p", {}, splits ? `Tablets larger than ${size(splits.max_bytes)}, or with more than ` +
      `${count(splits.max_load)} operations/s, are split, up to ${count(splits.max_tablets)} tablets ` +
      `(now ${count(totals.tablets)}). Since this node began to lead meta: ` +
      `${count(splits.by_size)} splits by size, ${count(splits.by_load)} by load.`
      : placement ? "The cluster's policy disables splits." : "The node that leads meta does not answer."),
    element("h2", {}, "Collection of old versions"),
    element("p", {}, `${count(collecting.reduce((n, h) => n + h.collected, 0))} entries collected ` +
      "since their leaders started; ",
      count(totals.garbage), " waiting."),
      element("h2", {}, "Expiry of cells"),
      table("Expiry", ["~table", "~column", "#expires after", "#due for", "~error"],
        answered.flatMap((r) => r.status.expiry?.rules ?? []).map((r) => [
          r.table_name, r.others ? "all others" : bytes(r.column), span(r.after_ms),
          {value: span(r.lag_ms), class: r.lag_ms - r.tolerated_ms > 600000 ? "warning strong" : null}, r.error,
        ]), "no table has an expiry"),
      element("h2", {}, "Commands"),
      element("p", {}, "As text: ", command("percolator jobs"), ". Start and cancel replays of rows on ",
      element("a", {href: "#/observers", "data-key": "observers"}, "Observers"),
      ", drains on ", element("a", {href: "#/nodes", "data-key": "nodes"}, "Nodes"),
      "; stop a backup or restore where it was started."),
    status.jobs.filter((j) => j.kind === "drain" && j.state === "blocked").map((j) => element("p", {},
      `Cancel the drain of ${j.subject}: `, command(
        `percolator node drain ${shell(status.nodes.find((r) => r.node.node_id === j.node_id)
          ?.node.listen || String(j.node_id))} --undo`))),
  ];
}

// The heat map: operations on tablets in the last hour, by time and range of rows.

import {address, get} from "./ask.js";
import {element, table} from "./dom.js";
import {bytes, count, moment, plural} from "./format.js";
import {command} from "./session.js";
import {hiddenKeys, position} from "./tablets.js";

// hottest is the number of listed ranges.
const hottest = 20;

const measures = {
  all: {title: "reads and writes", of: (r, i) => r.reads[i] + r.writes[i]},
  reads: {title: "reads", of: (r, i) => r.reads[i]},
  writes: {title: "writes", of: (r, i) => r.writes[i]},
};

// draw fills the canvas: a line for each range, the first at the top, and a column for each
// minute. The scale is logarithmic.
function draw(canvas, found, measure, most) {
  const [lines, columns] = [found.ranges.length, found.minutes.length];
  const [width, height] = [canvas.width / 60, canvas.height / lines];
  const ink = canvas.getContext("2d");
  ink.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--second");
  found.ranges.forEach((r, line) => {
    for (let i = 0; i < columns; i++) {
      const n = measure.of(r, i);
      if (n <= 0) continue;
      ink.globalAlpha = 0.08 + 0.92 * Math.log1p(n) / Math.log1p(most);
      ink.fillRect((60 - columns + i) * width, line * height, Math.max(1, width - 0.5),
        Math.max(1, height - (height > 4 ? 1 : 0)));
    }
  });
}

export async function heat(known, question) {
  const name = question.get("table");
  const number = [...known.tables].find(([, n]) => n === name)?.[0];
  const found = await get("heat", {table: name === null ? null : number ?? -1});
  const measure = measures[question.get("of")] ?? measures.all;
  const from = (r) => position(known.tables, r.from_table, r.from_row);
  const to = (r) => (r.to_end ? "the end" : position(known.tables, r.to_table, r.to_row));
  const ranges = found.ranges.map((r) => {
    const minutes = found.minutes.map((_, i) => measure.of(r, i));
    return {r, last: minutes.at(-1), peak: Math.max(...minutes),
      sum: minutes.reduce((a, b) => a + b, 0)};
  });
  const most = Math.max(1, ...ranges.map((x) => x.peak));
  const list = ranges.filter((x) => x.sum > 0).sort((a, b) => b.sum - a.sum).slice(0, hottest);
  const says = `${plural(ranges.length, "range")} over the last hour; ` + (list.length === 0
    ? "no operations" : `the hottest from ${from(list[0].r)} before ${to(list[0].r)}`);
  const canvas = element("canvas", {
    width: 1200, height: 480, class: "heat", role: "img", "aria-label": `Heat map: ${says}`,
  });
  draw(canvas, found, measure, most);
  const pointed = element("p", {class: "quiet pointed"},
    "Point at the map to see a range and its counts; the table below lists the hottest ranges.");
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const line = Math.floor((event.clientY - box.top) / box.height * found.ranges.length);
    const column = Math.floor((event.clientX - box.left) / box.width * 60) -
      (60 - found.minutes.length);
    const r = found.ranges[line];
    if (r === undefined || found.minutes[column] === undefined) return;
    pointed.textContent = `${from(r)} before ${to(r)}, ` +
      `${moment(found.minutes[column] * 60000).slice(11, 16)} UTC: ` +
      `${count(r.reads[column])} reads, ${count(r.writes[column])} writes`;
  });
  const link = (to_, text, here) => element("a", {href: to_, "data-key": text,
    "aria-current": here ? "true" : null, class: here ? "strong" : null}, text);
  const parameters = Object.fromEntries(question);
  return [
    element("h2", {}, "Tablet load, last hour"),
    element("p", {}, "Tables: ", link(address("heat", {...parameters, table: null}), "all tables",
      name === null), known.names.map((n) => [" · ",
      link(address("heat", {...parameters, table: n}), n, n === name)])),
    element("p", {}, "Showing ", Object.entries(measures).map(([key, m], i) => [i > 0 ? " · " : "",
      link(address("heat", {...parameters, of: key}), m.title, m === measure)])),
    hiddenKeys(found),
    found.silent.map((why) => element("p", {class: "warning"}, `Not on the map: ${why}`)),
    element("figure", {class: "map"},
      element("p", {class: "scale"}, element("span", {}, "1 h ago"),
        element("span", {}, `${says}; at most ${count(most)}/min`), element("span", {}, "now")),
      canvas, pointed),
    table("The hottest ranges", ["~from", "~before", "#last hour", "#busiest minute",
      "#this minute"], list.map((x) => [
      x.r.from_table === 0 ? from(x.r) : {value: element("a", {
        "data-key": `rows ${from(x.r)}`, href: address("cells", {
          table: known.tables.get(x.r.from_table), after: bytes(x.r.from_row) || null}),
      }, from(x.r))}, to(x.r), count(x.sum), count(x.peak), count(x.last)]),
    "no operations in the last hour"),
    element("p", {class: "quiet"}, "Operations on tablets, counted by their leaders in memory: a " +
    "restarted node has lost its counts."),
    element("h2", {}, "Commands"),
    element("p", {}, "Split a range that is much hotter than the others: ",
      command("percolator tablet split TABLE ROW"), ". A single hot row cannot be split: see ",
      element("a", {href: "#/locks", "data-key": "locks"}, "Locks"), " for its conflicts."),
  ];
}

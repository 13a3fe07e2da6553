// The console: listens to the node, and shows the page that the address names. A page is a
// function from what is known to elements; it keeps nothing.

import {element, replace} from "./dom.js";
import {nodeName, parse, span} from "./format.js";
import {overview, verdict} from "./overview.js";
import {nodes} from "./nodes.js";
import {tablets} from "./tablets.js";
import {observers} from "./observers.js";
import {locks} from "./locks.js";
import {internals} from "./internals.js";

const pages = new Map([
  ["overview", {title: "Overview", show: overview}],
  ["nodes", {title: "Nodes", show: nodes}],
  ["tablets", {title: "Tablets", show: tablets}],
  ["observers", {title: "Observers", show: observers}],
  ["locks", {title: "Locks", show: locks}],
  ["internals", {title: "Internals", show: internals}],
]);

// staleAfter is how old news may be, in milliseconds: a cluster without a quorum takes up
// to three seconds to say so.
const staleAfter = 8000;

// lostAfter is the same for a node that has ended the stream: browsers come back after a second.
const lostAfter = 3000;

const known = {
  status: null, // a ClusterStatusResponse
  tables: new Map(), // names by number; kept while meta does not tell
  error: "",
  history: {every_ms: 10000, points: []},
};
let heard = 0; // when this page was told last; 0: never
let lost = false; // the stream has ended, and has not told anything since
let held = false;

const place = (id) => document.getElementById(id);

// route is the page that the address names, and what stands behind its question mark.
function route() {
  const [name, question] = location.hash.replace(/^#\/?/, "").split("?");
  return {name: pages.has(name) ? name : "overview", question: new URLSearchParams(question)};
}

function links() {
  const {name} = route();
  document.title = `${pages.get(name).title} – Percolator`;
  replace(place("pages"), [...pages].map(([key, page]) => element("a", {
    href: `#/${key}`, "data-key": key, "aria-current": key === name ? "page" : null,
  }, page.title)));
}

// show draws everything anew, unless somebody has text of the page selected.
function show() {
  const says = verdict(known);
  const line = place("verdict");
  line.className = says.class;
  // A text that is set again would be read out again.
  if (line.textContent !== says.text) line.textContent = says.text;
  const selection = getSelection();
  if (!selection.isCollapsed && place("page").contains(selection.anchorNode)) return;
  const {name, question} = route();
  if (known.status !== null) replace(place("page"), pages.get(name).show(known, question));
}

function freshness() {
  const age = Date.now() - heard;
  const stale = heard === 0 || age > (lost ? lostAfter : staleAfter);
  const line = place("freshness");
  line.classList.toggle("stale", stale && !held);
  if (held) line.textContent = "held";
  else if (heard === 0) line.textContent = "no answer yet";
  else if (stale) {
    line.textContent = `This node has not answered for ${span(age)}: ` +
      "what is shown is old. Ask another node.";
  } else line.textContent = known.status === null ? "live"
    : `live, as ${nodeName(known.status, known.status.node_id)} sees it`;
}

function listen() {
  const events = new EventSource("/api/v1/cluster/stream");
  events.onmessage = (event) => {
    if (held) return;
    const told = parse(event.data);
    heard = Date.now();
    lost = false;
    known.error = told.error;
    if (told.status !== null) known.status = told.status;
    if (told.tables.length > 0) known.tables = new Map(told.tables.map((t) => [t.id, t.name]));
    show();
    freshness();
  };
  // A browser comes back by itself where the connection was lost, but not where it was refused.
  events.onerror = () => {
    lost = true;
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  };
}

async function readHistory() {
  try {
    const answer = await fetch("/api/v1/history");
    if (answer.ok && !held) known.history = await answer.json();
  } catch {
    // The node does not answer; the line at the top says so.
  }
  setTimeout(readHistory, known.history.every_ms);
}

place("hold").addEventListener("click", (event) => {
  held = !held;
  event.target.setAttribute("aria-pressed", String(held));
  freshness();
});
addEventListener("hashchange", () => {
  getSelection().removeAllRanges();
  links();
  show();
});
setInterval(freshness, 1000);
links();
listen();
readHistory();

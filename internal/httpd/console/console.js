// The console: listens to the node, and shows the page that the address names. A page is a
// function from what is known, and from what stands in the address, to elements; it keeps
// nothing. One with "show" is drawn anew with each event; one with "ask" asks the node for
// what it shows, when the address changes and, if it has "every", after so many milliseconds.

import {element, replace} from "./dom.js";
import {nodeName, parse, span} from "./format.js";
import {findings} from "./findings.js";
import {overview, verdict} from "./overview.js";
import {nodes} from "./nodes.js";
import {tablets} from "./tablets.js";
import {observers} from "./observers.js";
import {locks} from "./locks.js";
import {internals} from "./internals.js";
import {cells} from "./cells.js";
import {heat} from "./heat.js";
import {mailboxes} from "./mailboxes.js";
import {jobs} from "./jobs.js";
import {oracle} from "./oracle.js";
import {confirm, login, look, session} from "./session.js";
import {trace} from "./trace.js";

const pages = new Map([
  ["overview", {title: "Overview", show: overview}],
  ["nodes", {title: "Nodes", show: nodes}],
  ["tablets", {title: "Tablets", ask: tablets, every: 2000}],
  ["heat", {title: "Heat", ask: heat, every: 15000}],
  ["observers", {title: "Observers", ask: observers, every: 2000}],
  ["locks", {title: "Locks", ask: locks, every: 2000}],
  ["jobs", {title: "Jobs", show: jobs}],
  ["cells", {title: "Cells", ask: cells}],
  ["trace", {title: "Trace", ask: trace}],
  ["mailboxes", {title: "Mailboxes", ask: mailboxes, every: 5000}],
  ["oracle", {title: "Oracle", ask: oracle, every: 3000}],
  ["internals", {title: "Internals", show: internals}],
  ["login", {title: "Log in", ask: login}],
]);

// staleAfter is how old news may be, in milliseconds: a cluster without a quorum takes up
// to three seconds to say so.
const staleAfter = 8000;

// lostAfter is the same for a node that has ended the stream: browsers come back after a second.
const lostAfter = 3000;

const known = {
  status: null, // a ClusterStatusResponse
  tables: new Map(), // names by number, of dropped ones too; kept while meta does not tell
  names: [], // of the tables that there are
  error: "",
  totals: {tablets: 0, led: 0, locks: 0, garbage: 0}, // of all tablets
  history: {every_ms: 10000, points: [], silent: [], nodes: 0},
};
let heard = 0; // when this page was told last; 0: never
let lost = false; // the stream has ended, and has not told anything since
let held = false;
let asked = 0; // how often a page has asked: only the last answer is shown
let again = 0; // the timer of the next time
let shown = ""; // the page

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
  }, key === "login" && session.name !== "" ? session.name : page.title)));
}

// drawVerdict says in one line how the cluster is, above each page.
function drawVerdict() {
  const says = verdict(known);
  const line = place("verdict");
  line.className = says.class;
  // A text that is set again would be read out again.
  if (line.textContent !== says.text) line.textContent = says.text;
  if (known.status !== null && !selecting("findings")) {
    replace(place("findings"), findings(known.status, route().name));
  }
}

// show draws what is wrong, and the page from what is known, unless somebody has text of it
// selected.
function show() {
  drawVerdict();
  const {name, question} = route();
  const page = pages.get(name);
  if (known.status === null && name !== "login") return; // which nobody may see before
  if (page.ask) {
    if (asked === 0) ask();
    return;
  }
  if (!selecting("page")) replace(place("page"), page.show(known, question));
}

// selecting reports whether text of a part is selected, which drawing would undo.
function selecting(part) {
  const selection = getSelection();
  return !selection.isCollapsed && place(part).contains(selection.anchorNode);
}

// ask has the page ask, and shows what it makes of the answer, or why there is none.
async function ask() {
  clearTimeout(again);
  const mine = ++asked;
  const {name, question} = route();
  const page = pages.get(name);
  let elements;
  try {
    elements = await page.ask(known, question);
  } catch (failure) {
    elements = [element("h2", {}, page.title),
      element("p", {class: "critical", role: "alert"}, failure.message)];
  }
  if (mine !== asked) return;
  replace(place("page"), elements);
  if (page.every) again = setTimeout(repeat, page.every);
}

// repeat asks anew, unless somebody is at a field of the page, has text of it selected, or has
// held it.
function repeat() {
  clearTimeout(again);
  if (!pages.get(route().name).ask) show();
  else if (!held && !selecting("page") && !document.activeElement?.matches("#page :is(input, select)")) ask();
  else again = setTimeout(repeat, 1000);
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
    if (told.status !== null) {
      Object.assign(known, {status: told.status, totals: told.totals});
    }
    const seen = told.status !== null && confirm(told.status);
    if (told.tables.length > 0) {
      known.tables = new Map(told.tables.map((t) => [t.id, t.name]));
      known.names = told.tables.filter((t) => t.dropped_ts === 0).map((t) => t.name).sort();
    }
    show();
    freshness();
    if (seen) repeat();
  };
  // A browser comes back by itself where the connection was lost, but not where it was refused.
  // Why it was refused is not told here. If it was for the token, the session has the browser
  // forget it, and the page to log in is next.
  events.onopen = () => look().then(links);
  events.onerror = async () => {
    lost = true;
    if (events.readyState !== EventSource.CLOSED) return;
    const {name} = session;
    await look();
    links();
    if (name !== "" && session.name === "") location.hash = "#/login";
    setTimeout(listen, 5000);
  };
}

async function readHistory() {
  try {
    const answer = await fetch("/api/v1/history?scope=cluster");
    if (answer.ok && !held) known.history = parse(await answer.text());
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
  clearTimeout(again);
  asked++; // an answer that is still to come is for another page
  const {name} = route();
  // Until there is an answer: what is shown is not of this page.
  if (name !== shown) replace(place("page"), [element("h2", {}, pages.get(name).title),
    element("p", {class: "quiet"}, "Asking the cluster…")]);
  shown = name;
  links();
  drawVerdict();
  if ((known.status !== null || name === "login") && pages.get(name).ask) ask();
  else show();
});
setInterval(freshness, 1000);
shown = route().name;
addEventListener("acted", repeat); // buttons say that it is under way
links();
show();
listen();
readHistory();

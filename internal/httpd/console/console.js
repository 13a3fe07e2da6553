// The console: reads the node's event stream and shows the page that the address names. A page
// is a stateless function from the known state and the address's parameters to elements. A page
// with "show" is redrawn on each event; one with "ask" requests its data from the node, when the
// address changes and every "every" milliseconds.

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
import {confirm, login, look, ownAddress, session} from "./session.js";
import {trace} from "./trace.js";

const pages = new Map([
  ["overview", {title: "Overview", show: overview}],
  ["observers", {title: "Observers", ask: observers, every: 2000}],
  ["cells", {title: "Cells", ask: cells}],
  ["trace", {title: "Trace", ask: trace}],
  ["tablets", {title: "Tablets", ask: tablets, every: 2000}],
  ["nodes", {title: "Nodes", show: nodes}],
  ["heat", {title: "Heat", ask: heat, every: 15000, advanced: true}],
  ["mailboxes", {title: "Mailboxes", ask: mailboxes, every: 5000, advanced: true}],
  ["oracle", {title: "Oracle", ask: oracle, every: 3000, advanced: true}],
  ["internals", {title: "Internals", show: internals, advanced: true}],
  ["locks", {title: "Locks", ask: locks, every: 2000, advanced: true}],
  ["jobs", {title: "Jobs", show: jobs, advanced: true}],
  ["login", {title: "Log in", ask: login}],
]);

// staleAfter is the age at which the last event counts as stale, in milliseconds: a cluster
// without a quorum takes up to 3 s to report it.
const staleAfter = 8000;

// lostAfter is the same once the stream has ended: browsers reconnect after 1 s.
const lostAfter = 3000;

const known = {
  status: null, // a ClusterStatusResponse
  tables: new Map(), // names by id, including dropped tables; kept while meta does not answer
  names: [], // of existing tables
  error: "",
  totals: {tablets: 0, led: 0, locks: 0, garbage: 0}, // of all tablets
  history: {every_ms: 10000, points: [], silent: [], nodes: 0},
};
let lastEvent = 0; // time of the last event; 0: none yet
let lost = false; // the stream has ended, without an event since
let held = false;
let asked = 0; // number of the last request: only its answer is shown
let again = 0; // timer of the next request
let shown = ""; // name of the page shown

const place = (id) => document.getElementById(id);

// route returns the page that the address names and its query parameters.
function route() {
  const [name, question] = location.hash.replace(/^#\/?/, "").split("?");
  return {name: pages.has(name) ? name : "overview", question: new URLSearchParams(question)};
}

function links() {
  const {name} = route();
  document.title = `${pages.get(name).title} – Percolator`;
  const link = ([key, page]) => element("a", {
    href: `#/${key}`, "data-key": key, "aria-current": key === name ? "page" : null,
  }, key === "login" && session.name !== "" ? session.name : page.title);
  const all = [...pages], last = all.pop(); // the login
  const advanced = ([, page]) => Boolean(page.advanced);
  replace(place("pages"), [
    all.filter((p) => !advanced(p)).map(link),
    element("details", {open: pages.get(name).advanced ? "" : null},
      element("summary", {"data-key": "advanced"}, "Advanced"), all.filter(advanced).map(link)),
    link(last),
  ]);
}

// drawVerdict shows the cluster's state in one line above each page.
function drawVerdict() {
  const says = verdict(known);
  const line = place("verdict");
  line.className = says.class;
  // Setting the same text again would make screen readers repeat it.
  if (line.textContent !== says.text) line.textContent = says.text;
  if (known.status !== null && !selecting("findings")) {
    replace(place("findings"), findings(known.status, route().name));
  }
}

// show draws the findings and the page from the known state, unless text of it is selected.
function show() {
  drawVerdict();
  const {name, question} = route();
  const page = pages.get(name);
  if (known.status === null && name !== "login") return; // nothing to show yet
  if (page.ask) {
    if (asked === 0) ask();
    return;
  }
  if (!selecting("page")) replace(place("page"), page.show(known, question));
}

// selecting reports whether text of a part is selected; drawing would clear the selection.
function selecting(part) {
  const selection = getSelection();
  return !selection.isCollapsed && place(part).contains(selection.anchorNode);
}

// ask requests the page's data and shows the page, or the error.
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

// repeat requests the page again, unless a field has the focus, text is selected, or the page is
// paused.
function repeat() {
  clearTimeout(again);
  if (!pages.get(route().name).ask) show();
  else if (!held && !selecting("page") && !document.activeElement?.matches("#page :is(input, select)")) ask();
  else again = setTimeout(repeat, 1000);
}

function freshness() {
  const age = Date.now() - lastEvent;
  const stale = lastEvent === 0 || age > (lost ? lostAfter : staleAfter);
  const line = place("freshness");
  line.classList.toggle("stale", stale && !held);
  if (held) line.textContent = "paused";
  else if (lastEvent === 0) line.textContent = "no answer yet";
  else if (stale) {
    line.textContent = `This node has not answered for ${span(age)}: ` +
      "the data shown is stale. Use another node.";
  } else line.textContent = known.status === null ? "live"
    : `live, as ${nodeName(known.status, known.status.node_id)} sees it`;
}

function listen() {
  const events = new EventSource("/api/v1/cluster/stream");
  events.onmessage = (event) => {
    if (held) return;
    const told = parse(event.data);
    lastEvent = Date.now();
    lost = false;
    known.error = told.error;
    if (told.status !== null) {
      Object.assign(known, {status: told.status, totals: told.totals});
      ownAddress(told.status);
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
  // A browser reconnects after a lost connection, but not after a refused one. The event does not
  // carry the reason. If the token was refused, the session endpoint clears the cookie, and the
  // login page follows.
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
    // The node does not answer; the freshness line shows it.
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
  asked++; // a pending answer belongs to another page
  const {name} = route();
  // Placeholder until the answer arrives.
  if (name !== shown) replace(place("page"), [element("h2", {}, pages.get(name).title),
    element("p", {class: "quiet"}, "Loading…")]);
  shown = name;
  links();
  drawVerdict();
  if ((known.status !== null || name === "login") && pages.get(name).ask) ask();
  else show();
});
setInterval(freshness, 1000);
shown = route().name;
addEventListener("acted", repeat); // buttons then show that the action is pending
links();
show();
listen();
readHistory();

// Findings: all of them on the overview, the related ones on each other page.

import {element} from "./dom.js";
import {plural} from "./format.js";
import {command} from "./session.js";

const words = {
  SEVERITY_CRITICAL: ["critical", "Critical"], SEVERITY_WARNING: ["warning", "Warning"],
  SEVERITY_INFO: ["info", "Note"],
};

// about maps pages to the kinds of findings (internal/health) that they show.
const about = {
  nodes: /^(node|drain|disk|store|clock|certificate|versions|upgrade|settings)-|^writes-refused|^replica-failed/,
  tablets: /^(no|meta|placement)-|^replica-failed/,
  observers: /^observer-/,
  locks: /^lock-old|^observer-contended/,
  jobs: /^(drain|placement|history|backup|restore)-/,
  cells: /^(restore|history)-/,
  oracle: /^(clock|meta)-|^no-quorum/,
  mailboxes: /^writes-refused|^disk-low/,
  internals: /^(meta|certificate|history|backup|roleless|settings)-/,
  login: /^roleless-/,
};

// prose formats a text, with backquoted parts as code.
export function prose(text) {
  return text.split("`").map((part, i) => (i % 2 === 1 ? command(part) : part));
}

function finding(f) {
  const [state, word] = words[f.severity] ?? ["info", "Note"];
  return element("li", {class: state},
    element("span", {class: "strong"}, `${word}: ${f.subject}`),
    element("span", {class: "quiet"}, ` ${f.kind}`),
    element("p", {}, f.text),
    element("p", {}, element("span", {class: "strong"}, "Remedy: "), prose(f.remedy)));
}

// findings returns the findings of a page and the number of others.
export function findings({findings: all}, page) {
  const found = all.filter((f) => page === "overview" || about[page]?.test(f.kind));
  const others = all.length - found.length;
  return all.length === 0 ? [] : [element("h2", {}, "Findings"),
    found.length > 0 && element("ul", {class: "findings"}, found.map(finding)),
    others > 0 && element("p", {}, found.length > 0 ? "More on the " : "None for this page. On the ",
      element("a", {href: "#/overview", "data-key": "all findings"}, "overview"), `: ${plural(others,
        found.length > 0 ? "other finding" : "finding")}.`)];
}

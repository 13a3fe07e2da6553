// Construction of elements. Data of the cluster (names, rows, errors) becomes text nodes only:
// the console never builds markup from strings.

const svgNames = "http://www.w3.org/2000/svg";

// element creates an element. Null attributes are omitted; children are elements, strings and
// numbers, or lists of them.
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// svgElement is element for SVG.
export function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgNames, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

// whole keeps an address or another short plain word on one line.
export function whole(text) {
  return /^[\w.:[\]-]{1,64}$/.test(text) ? element("span", {class: "whole"}, text) : text;
}

// table creates a table that scrolls sideways if it is too wide; on narrow screens CSS shows each
// row as a list of its columns. A column is its name, prefixed
// with # for numbers, ~ for long text and ! for buttons; a row is a list of cells, each a child
// of element or {class, value}. The first cell of a row is its
// header unless it is empty. The last column is omitted
// if it is for buttons and has none.
export function table(caption, names, rows, empty = "none") {
  const pressed = rows.some((cells) => [cells.at(-1).value].flat(Infinity).some(Boolean));
  const columns = names.filter((name) => pressed || name[0] !== "!").map((name) => ({
    name: name.replace(/^[#~!]/, ""), class: {"#": "number", "~": "free", "!": "do"}[name[0]],
  }));
  const body = rows.map((cells) => element("tr", {}, cells.slice(0, columns.length).map((cell, i) => {
    const marked = cell !== null && typeof cell === "object" && "value" in cell;
    const classes = [columns[i].class, marked ? cell.class : null].filter(Boolean).join(" ");
    const head = i === 0 && cell !== "";
    return element(head ? "th" : "td", {scope: head ? "row" : null, class: classes || null,
      "data-column": columns[i].name}, marked ? cell.value : cell);
  })));
  if (body.length === 0) {
    body.push(element("tr", {}, element("td", {colspan: columns.length, class: "quiet"}, empty)));
  }
  return element("div", {
    class: "wide", tabindex: "0", role: "region", "aria-label": caption, "data-key": caption,
  }, element("table", {},
    element("thead", {}, element("tr", {}, columns.map(
      (c) => element("th", {scope: "col", class: c.class}, c.name)))),
    element("tbody", {}, body)));
}

// bar draws a fraction from 0 to 1.
export function bar(part) {
  const full = element("span");
  full.style.width = `${Math.round(100 * Math.min(1, Math.max(0, part)))}%`;
  return element("span", {class: "bar", "aria-hidden": "true"}, full);
}

// replace replaces the children of an element and keeps focus and scroll positions: elements that
// can have either carry a data-key.
export function replace(parent, children) {
  const keyed = () => [...parent.querySelectorAll("[data-key]")];
  const focus = document.activeElement?.dataset?.key;
  const focused = parent.contains(document.activeElement) ? focus : undefined;
  const scrolled = new Map(keyed().map((e) => [e.dataset.key, e.scrollLeft]));
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const e of keyed()) {
    e.scrollLeft = scrolled.get(e.dataset.key) ?? 0;
    if (focused !== undefined && e.dataset.key === focused) e.focus({preventScroll: true});
  }
}

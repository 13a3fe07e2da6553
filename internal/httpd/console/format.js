// Writes figures and names for people.

// count writes a number with its thousands apart.
export function count(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

// rate writes a number per second, small ones with a digit behind the point.
export function rate(n) {
  return n === 0 || n >= 10 ? count(n) : n.toFixed(1);
}

// size writes bytes in the unit that fits.
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let u = 0;
  for (; bytes >= 1024 && u < units.length - 1; u++) bytes /= 1024;
  return u === 0 ? `${bytes} B` : `${bytes.toFixed(1)} ${units[u]}`;
}

// span writes milliseconds in the two units that fit.
export function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 1) return "< 1 s";
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// millis is when a timestamp of the oracle was given out. (What a number of JavaScript
// loses of it is far below a millisecond.)
export function millis(timestamp) {
  return Math.floor(timestamp / 2 ** 18);
}

// parse reads JSON. Numbers that JavaScript can't hold, such as ids of nodes, become strings
// of their digits; a browser that does not tell these says that it has guessed.
export function parse(text) {
  const lost = (value) => Number.isInteger(value) && !Number.isSafeInteger(value);
  return JSON.parse(text, (_, value, context) => (
    lost(value) ? context?.source ?? `~${value}` : value));
}

// nodeName is how people know a node: by its address, where it has told one.
export function nodeName(status, id) {
  return status.nodes.find((r) => r.node.node_id === id)?.node.listen || `node ${id}`;
}

// since writes how long ago a timestamp was given out, by the clock of who answered.
export function since(timestamp, now) {
  return timestamp === 0 ? "—" : span(Math.max(0, now - millis(timestamp)));
}

// unclear are characters that can't be seen, or that change how others are shown.
const unclear = /[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}]/gu;

// escaped writes such a character as Go does.
function escaped(c) {
  return "\\U" + c.codePointAt(0).toString(16).padStart(8, "0");
}

// message writes an error's text, of which lines and tabs stay.
export function message(text) {
  return text.replace(unclear, (c) => (c === "\n" || c === "\t" ? c : escaped(c)));
}

// bytes writes a row, column or value, which is text or, as the API marks it, base64: text as
// it is where that is clear, else as a string of Go, which the node reads back.
export function bytes(value) {
  if (typeof value === "string") {
    return value.search(unclear) < 0 && !value.startsWith('"') ? value
      : JSON.stringify(value).replace(unclear, escaped);
  }
  const raw = atob(value?.base64 ?? "");
  return '"' + [...raw].map((c) => (c >= " " && c <= "~" && c !== '"' && c !== "\\")
    ? c : "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0")).join("") + '"';
}

// base64 writes a row, column or value as requests have it.
export function base64(value) {
  if (typeof value !== "string") return value.base64;
  return btoa(String.fromCharCode(...new TextEncoder().encode(value)));
}

// moment writes milliseconds since 1970 as a time in UTC.
export function moment(ms) {
  return new Date(Number(ms)).toISOString().replace("T", " ").replace("Z", "");
}

// compare puts timestamps in order, which may be numbers or strings of digits.
export function compare(a, b) {
  const [x, y] = [String(a), String(b)];
  return x.length - y.length || (x < y ? -1 : x > y ? 1 : 0);
}

// shell quotes a word of a command line, if it needs that.
export function shell(word) {
  return /^[\w./:@%+-]+$/.test(word) && !word.startsWith("-")
    ? word : "'" + word.replaceAll("'", "'\\''") + "'";
}

// plural is "1 tablet" or "3 tablets".
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

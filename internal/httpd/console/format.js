// Formatting of numbers and names.

// count formats a number with separated thousands.
export function count(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

// rate formats a number per second, with one decimal below 10.
export function rate(n) {
  return n === 0 || n >= 10 ? count(n) : n.toFixed(1);
}

// size formats bytes in the largest fitting unit.
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let u = 0;
  for (; bytes >= 1024 && u < units.length - 1; u++) bytes /= 1024;
  return u === 0 ? `${bytes} B` : `${bytes.toFixed(1)} ${units[u]}`;
}

// span formats milliseconds in the two largest fitting units.
export function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 1) return "< 1 s";
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// millis returns the time at which the oracle issued a timestamp, in milliseconds since 1970. (A
// JavaScript number loses far less than a millisecond of it.)
export function millis(timestamp) {
  return Math.floor(timestamp / 2 ** 18);
}

// parse parses JSON. Integers beyond JavaScript's range, such as node ids, become strings of their
// digits; without JSON source access, of approximate digits marked with "~".
export function parse(text) {
  const lost = (value) => Number.isInteger(value) && !Number.isSafeInteger(value);
  return JSON.parse(text, (_, value, context) => (
    lost(value) ? context?.source ?? `~${value}` : value));
}

// nodeName returns a node's address for clients, or its id.
export function nodeName(status, id) {
  return status.nodes.find((r) => r.node.node_id === id)?.node.listen || `node ${id}`;
}

// since formats the age of a timestamp by the answering node's clock.
export function since(timestamp, now) {
  return timestamp === 0 ? "—" : span(Math.max(0, now - millis(timestamp)));
}

// unclear matches characters that are invisible or change the rendering of others.
const unclear = /[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}]/gu;

// escaped formats such a character as a Go escape.
function escaped(c) {
  return "\\U" + c.codePointAt(0).toString(16).padStart(8, "0");
}

// message formats an error's text; it keeps newlines and tabs.
export function message(text) {
  return text.replace(unclear, (c) => (c === "\n" || c === "\t" ? c : escaped(c)));
}

// bytes formats a row, column or value, which the API sends as text or marked base64: clear text
// unchanged, anything else as a Go string literal, which the node parses.
export function bytes(value) {
  if (typeof value === "string") {
    return value.search(unclear) < 0 && !value.startsWith('"') ? value
      : JSON.stringify(value).replace(unclear, escaped);
  }
  const raw = atob(value?.base64 ?? "");
  return '"' + [...raw].map((c) => (c >= " " && c <= "~" && c !== '"' && c !== "\\")
    ? c : "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0")).join("") + '"';
}

// base64 encodes a row, column or value for a request.
export function base64(value) {
  if (typeof value !== "string") return value.base64;
  return btoa(String.fromCharCode(...new TextEncoder().encode(value)));
}

// moment formats milliseconds since 1970 as a time in UTC.
export function moment(ms) {
  return new Date(Number(ms)).toISOString().replace("T", " ").replace("Z", "");
}

// compare orders timestamps, which are numbers or strings of digits.
export function compare(a, b) {
  const [x, y] = [String(a), String(b)];
  return x.length - y.length || (x < y ? -1 : x > y ? 1 : 0);
}

// shell quotes a word of a command line if necessary.
export function shell(word) {
  return /^[\w./:@%+-]+$/.test(word) && !word.startsWith("-")
    ? word : "'" + word.replaceAll("'", "'\\''") + "'";
}

// plural returns "1 tablet" or "3 tablets".
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

// Requests to the node for data that is not in its event stream.

import {parse} from "./format.js";

// get returns the parsed answer of a path. Null parameters are omitted. It throws an Error with
// the node's message.
export async function get(path, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, v]) => v !== null && v !== undefined);
  const query = new URLSearchParams(kept.map(([k, v]) => [k, String(v)])).toString();
  let answer, body;
  try {
    answer = await fetch(`/api/v1/${path}${query && "?"}${query}`);
    body = await answer.text();
  } catch {
    throw new Error("This node does not answer: use another one.");
  }
  if (answer.ok) return parse(body);
  let says = body;
  try {
    says = parse(body).error;
  } catch {
    // Not JSON: shown unchanged.
  }
  throw new Error(says);
}

// address returns the link to a page of the console with the parameters.
export function address(page, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, v]) => v !== null && v !== undefined);
  return `#/${page}?${new URLSearchParams(kept.map(([k, v]) => [k, String(v)]))}`;
}

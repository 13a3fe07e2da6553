// Asks the node for what is not in its stream.

import {parse} from "./format.js";

// get returns the answer of the path with these parameters; those that are null are left out.
// An error's message is what the node says is wrong.
export async function get(path, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, v]) => v !== null && v !== undefined);
  const query = new URLSearchParams(kept.map(([k, v]) => [k, String(v)])).toString();
  let answer, body;
  try {
    answer = await fetch(`/api/v1/${path}${query && "?"}${query}`);
    body = await answer.text();
  } catch {
    throw new Error("This node does not answer: ask another one.");
  }
  if (answer.ok) return parse(body);
  let says = body;
  try {
    says = parse(body).error;
  } catch {
    // It was no JSON: shown as it is.
  }
  throw new Error(says);
}

// address is the link to a page of the console with these parameters.
export function address(page, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, v]) => v !== null && v !== undefined);
  return `#/${page}?${new URLSearchParams(kept.map(([k, v]) => [k, String(v)]))}`;
}

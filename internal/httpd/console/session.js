// The login session and the operators' actions. The token is in a cookie that no script can read.
// An action counts as pending until the event stream shows its effect.

import {element} from "./dom.js";
import {moment, shell} from "./format.js";

export const session = {name: "", role: "", how: "", may_act: false, expires_unix_ms: 0, problem: "",
  program: "percolator"};

// address is that of this node for clients, if it is not the one that commands use anyway.
let address = "";

// offline matches the commands that talk to no node, as in internal/inspect/command.go.
const offline = /^percolator (start|dev|cert|completion|help|version|recover (apply|inspect|plan)|backup (ls|prune|verify))\b/;

// ownAddress sets the address that commands are sent to.
export function ownAddress(status) {
  const own = status?.nodes.find((r) => r.node.node_id === status.node_id)?.node.listen ?? "";
  address = own === "127.0.0.1:7800" ? "" : own;
}

// ownCommand has a command of percolator name this binary and this node, so that it can be pasted.
export function ownCommand(text) {
  if (!/^percolator /.test(text)) return text;
  const here = address === "" || offline.test(text) || text.endsWith(" --help");
  return shell(session.program) + text.slice("percolator".length) + (here ? "" : ` --addr ${shell(address)}`);
}

// command shows a command.
export function command(text) {
  return element("code", {}, ownCommand(text));
}

// send posts JSON and returns the parsed answer. It throws an Error with the node's message.
async function send(path, body) {
  let answer, text;
  try {
    answer = await fetch(`/api/v1/${path}`, {
      method: "POST", body: JSON.stringify(body),
      headers: {"Content-Type": "application/json", "X-Percolator-Console": "1"},
    });
    text = await answer.text();
  } catch {
    throw new Error("This node does not answer; the outcome is unknown. Check before retrying.");
  }
  let found = {error: text};
  try {
    found = JSON.parse(text);
  } catch {
    // Not JSON: shown unchanged.
  }
  if (!answer.ok) {
    if (answer.status === 401) Object.assign(session, {name: "", role: "", may_act: false});
    throw new Error(found.error);
  }
  return found;
}

// look reads the session.
export async function look() {
  try {
    const answer = await fetch("/api/v1/session");
    if (answer.ok) Object.assign(session, await answer.json());
  } catch {
    // The node does not answer; the freshness line shows it.
  }
}

// pending holds the actions that the stream does not show yet, by the keys of their buttons: their
// deadline, the events seen since, and a test of whether a status shows the effect.
const pending = new Map();

// pendingTimeout bounds the wait for an action's effect, in milliseconds: another operator may have
// undone it.
const pendingTimeout = 20_000;

// confirm processes a status from the stream and reports whether a pending action is done.
export function confirm(status) {
  const before = pending.size;
  for (const [key, act] of pending) {
    // A status requested before the action may arrive after it; the next one includes it.
    const shows = act.seen ? act.seen(status) : ++act.events >= 2;
    if (shows || Date.now() > act.until) pending.delete(key);
  }
  return pending.size < before;
}

// action returns a button that performs an action after a confirmation; null without permission.
// body is the action's message or, with a field, a function from the field's value to it. seen
// reports whether a status shows the effect; without it the action is pending for two events.
export function action(label, what, name, body, {field = null, seen = null} = {}) {
  if (!session.may_act) return null;
  const key = `${label} ${what}`, waits = pending.has(key);
  const button = element("button", {
    type: "button", "data-key": key, "aria-disabled": waits ? "true" : null,
  }, waits ? `${label}: pending…` : label);
  if (!waits) {
    button.addEventListener("click", () => agree(label, what, name, body, field, (sent) => {
      pending.set(key, {until: Date.now() + pendingTimeout, events: 0,
        seen: seen && ((status) => seen(status, sent))});
      dispatchEvent(new Event("acted"));
    }));
  }
  return button;
}

// agree asks for confirmation, performs the action and shows the outcome.
function agree(label, what, name, body, field, acted) {
  const says = element("p", {role: "status"});
  const input = field && element("input", {type: "number", min: 0, value: field.value, required: ""});
  const cancel = element("button", {type: "button"}, "Cancel");
  const go = element("button", {}, label);
  const form = element("form", {}, element("h2", {}, `${label}: ${what}?`),
    element("p", {class: "quiet"}, `Logged in as ${session.name}. The action is recorded in the audit log.`),
    input && element("label", {}, `${field.label} `, input), says,
    element("p", {class: "buttons"}, go, " ", cancel));
  const box = element("dialog", {"aria-label": `${label}: ${what}`}, form);
  cancel.addEventListener("click", () => box.close());
  box.addEventListener("close", () => {
    box.remove();
    // A redraw may have replaced the button's element.
    document.querySelector(`[data-key=${CSS.escape(`${label} ${what}`)}]`)?.focus();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    says.textContent = "…";
    try {
      const sent = input ? body(Number(input.value)) : body;
      const answer = await send(`actions/${name}`, sent);
      acted(sent);
      says.textContent = answer.replayed === undefined ? "Done." : `Done: ${answer.replayed} will run again.`;
      says.className = "good";
    } catch (failure) {
      says.textContent = failure.message;
      says.className = "critical";
    }
    go.hidden = true;
    cancel.textContent = "Close";
    cancel.focus();
  });
  document.body.append(box);
  box.showModal();
  cancel.focus();
}

// login returns the page.
export async function login() {
  await look();
  const says = element("p", {role: "alert", class: "critical"}, session.problem);
  if (session.name !== "") {
    const out = element("button", {type: "button", "data-key": "out"}, "Log out");
    out.addEventListener("click", async () => {
      try {
        Object.assign(session, await send("logout", {}));
        dispatchEvent(new Event("hashchange"));
      } catch (failure) {
        says.textContent = failure.message;
      }
    });
    return [element("h2", {}, "Logged in"),
      element("p", {}, `${session.name}, ${session.role}, by ${session.how}`,
        session.expires_unix_ms > 0 && `, until ${moment(session.expires_unix_ms)} UTC`, "."),
      element("p", {}, session.may_act ? "Buttons on the Nodes and Observers pages take effect after a " +
      "confirmation." : "This role is read-only: actions need an operator's token."),
      session.how === "token" && out, says];
  }
  const input = element("input", {
    type: "password", name: "token", size: 60, "data-key": "token", autocomplete: "off",
    required: "",
  });
  const form = element("form", {class: "fields"},
    element("label", {}, element("span", {}, "Token"), input),
    element("button", {"data-key": "in"}, "Log in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      Object.assign(session, await send("login", {token: input.value}));
      dispatchEvent(new Event("hashchange"));
    } catch (failure) {
      says.textContent = failure.message;
    }
  });
  return [element("h2", {}, "Log in"),
    element("p", {}, "Log in with a token from ", command(
    "percolator token create NAME --role operator"), ". Reading needs no login, except for " +
    "rows and values of a node with certificates, unless http-login is set."), form, says];
}

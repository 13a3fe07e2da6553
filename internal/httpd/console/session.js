// Who is logged in, and what an operator may have the node do. The token is in a cookie that
// no script can read. What was done is under way for the pages until the stream shows it.

import {element} from "./dom.js";
import {moment} from "./format.js";

export const session = {name: "", role: "", how: "", may_act: false, expires_unix_ms: 0, problem: ""};

// send posts JSON, and returns what comes; an error's message is what the node says is wrong.
async function send(path, body) {
  let answer, text;
  try {
    answer = await fetch(`/api/v1/${path}`, {
      method: "POST", body: JSON.stringify(body),
      headers: {"Content-Type": "application/json", "X-Percolator-Console": "1"},
    });
    text = await answer.text();
  } catch {
    throw new Error("This node does not answer. Whether it has done it is not known: look first.");
  }
  let found = {error: text};
  try {
    found = JSON.parse(text);
  } catch {
    // It was no JSON: shown as it is.
  }
  if (!answer.ok) {
    if (answer.status === 401) Object.assign(session, {name: "", role: "", may_act: false});
    throw new Error(found.error);
  }
  return found;
}

// look asks who is logged in.
export async function look() {
  try {
    const answer = await fetch("/api/v1/session");
    if (answer.ok) Object.assign(session, await answer.json());
  } catch {
    // The node does not answer; the line at the top says so.
  }
}

// unseen are the acts that the stream does not show yet, by the keys of their buttons: until
// when they are waited for, which event would show them, and what of a status does.
const unseen = new Map();

// patience is how long an act is waited for, in milliseconds: another may have undone it.
const patience = 20_000;

// confirm takes note of a status that the stream has brought, and reports whether an act that
// was under way is no more.
export function confirm(status) {
  const before = unseen.size;
  for (const [key, act] of unseen) {
    // One that was asked for before the act may come after it: the next is sure to know.
    const shows = act.seen ? act.seen(status) : ++act.events >= 2;
    if (shows || Date.now() > act.until) unseen.delete(key);
  }
  return unseen.size < before;
}

// action is a button that has the node do something, once that was agreed to; null for who may
// not. body is the action's message, as it is or, of a field, made of what was put in. seen
// finds in a status that it was done; without it two events of the stream are waited for.
export function action(label, what, name, body, {field = null, seen = null} = {}) {
  if (!session.may_act) return null;
  const key = `${label} ${what}`, waits = unseen.has(key);
  const button = element("button", {
    type: "button", "data-key": key, "aria-disabled": waits ? "true" : null,
  }, waits ? `${label}: under way…` : label);
  if (!waits) {
    button.addEventListener("click", () => agree(label, what, name, body, field, (sent) => {
      unseen.set(key, {until: Date.now() + patience, events: 0,
        seen: seen && ((status) => seen(status, sent))});
      dispatchEvent(new Event("acted"));
    }));
  }
  return button;
}

// agree asks whether that is meant, does it, and says what came of it.
function agree(label, what, name, body, field, acted) {
  const says = element("p", {role: "status"});
  const input = field && element("input", {type: "number", min: 0, value: field.value, required: ""});
  const cancel = element("button", {type: "button"}, "Cancel");
  const go = element("button", {}, label);
  const form = element("form", {}, element("h2", {}, `${label}: ${what}?`),
    element("p", {class: "quiet"}, `As ${session.name}. It is written to the audit log.`),
    input && element("label", {}, `${field.label} `, input), says,
    element("p", {class: "buttons"}, go, " ", cancel));
  const box = element("dialog", {"aria-label": `${label}: ${what}`}, form);
  cancel.addEventListener("click", () => box.close());
  box.addEventListener("close", () => {
    box.remove();
    // The page was perhaps drawn anew: its button is another element now.
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

// login is the page.
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
      element("p", {}, session.may_act ? "Buttons on the pages of nodes and observers act at once " +
        "after a confirmation." : "This role reads only: acting needs an operator's token."),
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
    element("p", {}, "With a token that ", element("code", {},
      "percolator token create NAME --role operator"), " has made. Looking needs none, but for " +
      "rows and values of a node with certificates, unless http-login is set."), form, says];
}

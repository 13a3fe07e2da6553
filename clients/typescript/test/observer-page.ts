// The script of the page of web.test.ts that runs an observer. Its token is in the fragment, which browsers do not send.

import { column, connect, observer } from "../src/web.js";

const greeting = column<string>("web", "greeting");
const loud = column<string>("web", "loud");

const gateway = new URLSearchParams(location.search).get("gateway") ?? "";
const db = connect([gateway], { token: location.hash.slice(1) });
const worker = db.observe([
  observer("loud", greeting, async (tx, { row }) => {
    tx.set(loud, row, ((await tx.get(greeting, row)) ?? "").toUpperCase());
  }),
]);
const report = await worker.ready.then(
  () => "ready",
  (thrown: unknown) => `error ${thrown}`,
);
await fetch("/report", { method: "POST", body: report });
await worker.ended;

// The script of the page of web.test.ts.

import { column, connect } from "../src/web.js";

const greeting = column<string>("web", "greeting");

async function run(): Promise<string> {
  const db = connect([new URLSearchParams(location.search).get("gateway") ?? ""]);
  await db.transact(async (tx) => tx.set(greeting, "page", "hello"), { timeoutMs: 5_000 });
  const read = await db.get(greeting, "page");
  let scanned = 0;
  await db.snapshot(async (reader) => {
    for await (const _ of reader.scan(greeting, { prefix: "pa" })) {
      scanned++;
    }
  });
  return `read ${read}, scanned ${scanned}`;
}

const report = await run().catch((thrown: unknown) => `error ${thrown}`);
await fetch("/report", { method: "POST", body: report });

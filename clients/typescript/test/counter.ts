// A worker that observers.test.ts starts and kills. Its arguments are the addresses of the gateways.

import { batchObserver, column, connect, integer, observer } from "../src/node.js";

const input = column("pages", "input");
const count = column("pages", "count", integer);
const total = column("totals", "count", integer);
const batches = column("totals", "batches", integer);

const db = connect(process.argv.slice(2));
const worker = db.observe(
  [
    observer("count", input, async (tx, { row }) => {
      const name = `${(row as string).slice(-1)}`;
      tx.set(count, row, ((await tx.get(count, row)) ?? 0n) + 1n);
      tx.set(total, name, ((await tx.get(total, name)) ?? 0n) + 1n);
    }),
    batchObserver(
      "batches",
      input,
      async (tx, changes) => {
        tx.set(batches, "all", ((await tx.get(batches, "all")) ?? 0n) + BigInt(changes.length));
      },
      { batch: 20, concurrency: 1 },
    ),
  ],
  { tables: ["totals"] },
);
await worker.ready;
console.log("ready");
await worker.ended;

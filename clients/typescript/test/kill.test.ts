import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client } from "../src/node.js";
import { column, connect, integer, set } from "../src/node.js";
import { Cluster } from "./cluster.js";

const counter = column("counters", "n", integer);
const rows = ["a", "b", "c", "d"];
const perWorker = 60;

// Each worker moves one between two counters and counts in a third: what commits twice or not at all shows
// in the sums.
// follow applies the feed to a map until everything up to `end` has arrived.
async function follow(db: Client, end: Promise<bigint>): Promise<Map<string, bigint>> {
  const state = new Map<string, bigint>();
  let until: bigint | undefined;
  void end.then((timestamp) => (until = timestamp));
  for await (const { changes, resolved } of db.changes({ ranges: [{ table: "counters" }], initial: true })) {
    for (const change of changes) {
      if (change.value !== undefined) {
        state.set(change.row as string, counter.codec.decode(change.value));
      }
    }
    if (until !== undefined && resolved !== undefined && resolved >= until) {
      break;
    }
  }
  return state;
}

test("transactions commit exactly once while nodes are killed", { timeout: 180_000 }, async (t) => {
  const cluster = await Cluster.start(3);
  t.after(() => cluster.stop());
  await cluster.client().createTable("counters", { splitKeys: ["b", "d"] });

  let ended: (timestamp: bigint) => void = () => undefined;
  const followed = follow(cluster.client(), new Promise((resolve) => (ended = resolve)));
  let running = true;
  const killer = (async () => {
    for (let i = 0; running; i = (i + 1) % 3) {
      await cluster.kill(i);
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      await cluster.startNode(i);
      await new Promise((resolve) => setTimeout(resolve, 3_000));
    }
  })();
  const worker = async (w: number): Promise<void> => {
    const db = connect([...cluster.gateways.slice(w % 3), ...cluster.gateways.slice(0, w % 3)]);
    for (let i = 0; i < perWorker; i++) {
      const [from, to] = [rows[(w + i) % 3] as string, rows[(w + i + 1) % 3] as string];
      await db.transact(
        async (tx) => {
          const cells = await tx.getMany(counter, [from, to, "total"]);
          const value = (row: string): bigint => cells.find((c) => c.row === row)?.value ?? 0n;
          tx.set(counter, from, value(from) - 1n);
          tx.set(counter, to, value(to) + 1n);
          tx.set(counter, "total", value("total") + 1n);
        },
        { timeoutMs: 60_000 },
      );
    }
  };
  await Promise.all(Array.from({ length: 4 }, (_, w) => worker(w)));
  running = false;
  await killer;

  const db = cluster.client();
  const last = await db.apply([set(counter, "end", 1n)], { timeoutMs: 60_000 });
  ended(last.commitTimestamp);
  const cells = await db.snapshot((r) => r.getMany(counter, [...rows, "total", "end"]), { timeoutMs: 60_000 });
  const total = cells.find((c) => c.row === "total");
  assert.equal(total?.value, BigInt(4 * perWorker));
  const counters = cells.filter((c) => rows.includes(c.row as string));
  assert.equal(counters.reduce((sum, c) => sum + c.value, 0n), 0n);
  assert.deepEqual([...(await followed)].sort(), cells.map((c) => [c.row, c.value]).sort());
});

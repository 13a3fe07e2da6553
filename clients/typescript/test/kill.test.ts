import assert from "node:assert/strict";
import { test } from "node:test";

import { column, connect, integer } from "../src/node.js";
import { Cluster } from "./cluster.js";

const counter = column("counters", "n", integer);
const rows = ["a", "b", "c", "d"];
const perWorker = 60;

// Each worker moves one between two counters and counts in a third: what commits twice or not at all shows
// in the sums.
test("transactions commit exactly once while nodes are killed", { timeout: 180_000 }, async (t) => {
  const cluster = await Cluster.start(3);
  t.after(() => cluster.stop());
  await cluster.client().createTable("counters", { splitKeys: ["b", "d"] });

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

  const cells = await cluster
    .client()
    .snapshot((r) => r.getMany(counter, [...rows, "total"]), { timeoutMs: 60_000 });
  const total = cells.find((c) => c.row === "total");
  assert.equal(total?.value, BigInt(4 * perWorker));
  assert.equal(cells.reduce((sum, c) => (c.row === "total" ? sum : sum + c.value), 0n), 0n);
});

import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import type { Client, Observed } from "../src/node.js";
import {
  batchObserver,
  column,
  integer,
  observer,
  PartialFailure,
  PercolatorError,
  Reason,
  RetryAfter,
  set,
} from "../src/node.js";
import { Cluster } from "./cluster.js";

const input = column<string>("pages", "input");
const count = column("pages", "count", integer);
const total = column("totals", "count", integer);
const batches = column("totals", "batches", integer);

async function eventually(what: string, holds: () => Promise<boolean>, withinMs = 180_000): Promise<void> {
  for (const end = performance.now() + withinMs; !(await holds()); await pause(50)) {
    assert.ok(performance.now() < end, `not within ${withinMs} ms: ${what}`);
  }
}

// write writes rows, a few at once.
async function write(db: Client, from: number, rows: number): Promise<void> {
  let next = from;
  const writer = async (): Promise<void> => {
    while (next < from + rows) {
      const n = next++;
      await db.apply([set(input, `row/${n % 10}/${n}`, "x")], { timeoutMs: 120_000 });
    }
  };
  await Promise.all([writer(), writer(), writer(), writer()]);
}

async function countsOf(db: Client): Promise<Map<bigint, number>> {
  const found = new Map<bigint, number>();
  await db.snapshot(async (reader) => {
    for await (const cell of reader.scan(count)) {
      found.set(cell.value, (found.get(cell.value) ?? 0) + 1);
    }
  });
  return found;
}

const quiet = { onError: () => undefined };

test("observers run for changes, fail, wait for services, and drain", { timeout: 120_000 }, async (t) => {
  const cluster = await Cluster.start(1);
  t.after(() => cluster.stop());
  const db = cluster.client();
  const seen: Observed[] = [];
  const attempts: number[] = [];
  let refusals = 0;
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  let holding: () => void = () => undefined;
  const holds = new Promise<void>((resolve) => (holding = resolve));
  const worker = db.observe(
    [
      observer("count", input, async (tx, change) => {
        seen.push(change);
        tx.set(count, change.row, ((await tx.get(count, change.row)) ?? 0n) + 1n);
      }),
      observer("refused", input, async (tx, { row }) => {
        if (refusals++ === 0) {
          throw new RetryAfter(300, "slow down");
        }
        tx.set(column("pages", "served", integer), row, BigInt(refusals));
      }),
      observer(
        "fails",
        input,
        async (_, { attempt }) => {
          attempts.push(attempt);
          throw new Error("always");
        },
        { maxAttempts: 2 },
      ),
      batchObserver("partial", input, async (tx, changes) => {
        const failed = new Map(changes.filter((c) => c.attempt === 0).map((c) => [c.row, new Error("first")]));
        for (const { row } of changes.filter((c) => c.attempt > 0)) {
          tx.set(column("pages", "second", integer), row, 1n);
        }
        if (failed.size > 0) {
          throw new PartialFailure(failed);
        }
      }),
      observer("holds", column("gates", "open"), async (tx, { row }, signal) => {
        holding();
        await held;
        tx.set(column("gates", "passed", integer), row, signal.aborted ? 0n : 1n);
      }),
    ],
    quiet,
  );
  await worker.ready;
  await write(db, 0, 3);
  await eventually("all is done", async () => {
    const done = (name: string): Promise<number> =>
      db.snapshot(async (r) => (await r.getMany(column("pages", name), ["row/0/0", "row/1/1", "row/2/2"])).length);
    return attempts.length === 6 && (await done("second")) === 3 && (await done("count")) === 3 &&
      (await done("served")) === 3;
  });
  assert.deepEqual([...attempts].sort(), [0, 0, 0, 1, 1, 1]);
  assert.equal(seen.length, 3);
  assert.ok(refusals >= 4, `${refusals} calls of the service for 3 changes, one of which it has refused`);

  await db.apply([set(column("gates", "open"), "g", "x")]);
  await holds;
  const closed = worker.close();
  await write(db, 3, 3);
  release();
  await closed;
  assert.equal(await db.get(column("gates", "passed", integer), "g"), 1n);
  assert.equal(seen.length, 3, "a worker that is closed ran for a later change");

  // Contradictions are refused for good.
  const other = db.observe([observer("count", input, async () => undefined, { weak: true })], quiet);
  await assert.rejects(other.ended, (e) => e instanceof PercolatorError && e.reason === Reason.INVALID);
  await assert.rejects(other.ready);
});

// A process that runs counter.ts.
class Counter {
  private process: ChildProcess | undefined;

  constructor(private readonly gateways: readonly string[]) {}

  async start(): Promise<void> {
    const script = fileURLToPath(new URL("counter.js", import.meta.url));
    this.process = spawn(process.execPath, [script, ...this.gateways], { stdio: ["ignore", "pipe", "ignore"] });
    await once(this.process.stdout as NodeJS.EventEmitter, "data"); // ready
  }

  async kill(): Promise<void> {
    const ended = this.process && this.process.exitCode === null ? once(this.process, "exit") : undefined;
    this.process?.kill("SIGKILL");
    await ended;
  }
}

const rounds = Number(process.env["ROUNDS"] ?? 2);
const perRound = 300;

test("each change counts once while workers and nodes are killed", { timeout: 240_000 + 60_000 * rounds }, async (t) => {
  const cluster = await Cluster.start(3);
  const workers = [new Counter(cluster.gateways), new Counter(cluster.gateways)];
  t.after(async () => {
    await Promise.all(workers.map((w) => w.kill()));
    await cluster.stop();
  });
  const db = cluster.client();
  await db.createTable("pages", { splitKeys: ["row/5"] });
  await Promise.all(workers.map((w) => w.start()));
  await cluster.replicated();
  let written = 0;
  for (let round = 0; round < rounds; round++) {
    const worker = workers[round % 2] as Counter;
    const writing = write(db, written, perRound);
    written += perRound;
    await pause(150);
    await worker.kill();
    await pause(300);
    await cluster.kill(round % 3);
    await worker.start();
    await pause(1_000);
    await cluster.startNode(round % 3);
    await writing;
  }
  await eventually("every row is counted", async () => {
    const counted = await countsOf(db).catch(() => new Map<bigint, number>());
    const all = (await db.get(batches, "all").catch(() => undefined)) ?? 0n;
    return [...counted.values()].reduce((a, b) => a + b, 0) >= written && all >= BigInt(written);
  });
  await pause(1_500); // a second run of a change would begin by now
  assert.deepEqual(await countsOf(db), new Map([[1n, written]]));
  const sums = await db.snapshot((r) => r.getMany(total, [..."0123456789"]));
  assert.equal(sums.reduce((sum, c) => sum + c.value, 0n), BigInt(written));
  assert.equal(await db.get(batches, "all"), BigInt(written));
});

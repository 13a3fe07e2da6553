import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import type { Interceptor, Transport } from "@connectrpc/connect";
import { Code, ConnectError } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";

import { Endpoints } from "../src/endpoints.js";
import type { Transaction } from "../src/node.js";
import {
  Client,
  ConditionError,
  PercolatorError,
  Reason,
  bytes,
  column,
  connect,
  equals,
  exists,
  integer,
  remove,
  set,
  text,
} from "../src/node.js";
import { Cluster } from "./cluster.js";

const name = column("people", "name", text);
const balance = column("people", "balance", integer);
const tags = column<string[]>("people", "tags");

let cluster: Cluster;
let db: Client;

before(async () => {
  cluster = await Cluster.start(1);
  db = cluster.client();
  await db.createTable("people", { splitKeys: ["m"] });
});
after(() => cluster.stop());

test("a transaction commits in two tablets and reads its own writes", async () => {
  const result = await db.transact(async (tx) => {
    assert.equal(await tx.get(name, "alice"), undefined);
    tx.set(name, "alice", "Alice");
    tx.set(tags, "zoe", ["a", "b"]);
    assert.equal(await tx.get(name, "alice"), "Alice");
    tx.set(balance, "alice", 3n);
    tx.set(balance, "alice", 5n);
    return "done";
  });
  assert.equal(result.value, "done");
  assert.equal(await db.get(name, "alice"), "Alice");
  assert.equal(await db.get(balance, "alice"), 5n);
  assert.deepEqual(await db.get(tags, "zoe"), ["a", "b"]);
  await db.waitFor(result.commitTimestamp);
});

test("a transaction that throws writes nothing", async () => {
  const thrown = new Error("no");
  await assert.rejects(
    db.transact(async (tx) => {
      tx.set(name, "bob", "Bob");
      await tx.flush();
      throw thrown;
    }),
    thrown,
  );
  assert.equal(await db.get(name, "bob"), undefined);
});

test("concurrent increments are all counted", async () => {
  const counter = column("people", "count", integer);
  const add = async (): Promise<void> => {
    for (let i = 0; i < 10; i++) {
      await db.transact(async (tx) => tx.set(counter, "all", ((await tx.get(counter, "all")) ?? 0n) + 1n));
    }
  };
  await Promise.all(Array.from({ length: 4 }, add));
  assert.equal(await db.get(counter, "all"), 40n);
});

// lossy returns a client to which the first answers of a method are lost.
function lossy(method: string, losses: number): Client {
  const lose: Interceptor = (next) => async (request) => {
    const answer = await next(request);
    if (request.method.name === method && losses-- > 0) {
      throw new ConnectError("lost", Code.Unavailable);
    }
    return answer;
  };
  const dial = (address: string): Transport =>
    createConnectTransport({ baseUrl: `http://${address}`, httpVersion: "2", interceptors: [lose] });
  return new Client(new Endpoints(cluster.gateways, dial));
}

test("a transaction whose commit's answer is lost commits once", async () => {
  const counter = column("people", "lost", integer);
  const add = async (tx: Transaction): Promise<bigint> => {
    const sum = ((await tx.get(counter, "r")) ?? 0n) + 1n;
    tx.set(counter, "r", sum);
    return sum;
  };
  const { value, commitTimestamp } = await lossy("Commit", 3).transact(add);
  assert.equal(value, 1n);
  assert.ok(commitTimestamp > 0n);
  assert.equal(await db.get(counter, "r"), 1n);

  await assert.rejects(
    lossy("Commit", 1).transact(add, { exactlyOnce: false }),
    (err) => err instanceof PercolatorError && err.maybeCommitted,
  );
  assert.equal(await db.get(counter, "r"), 2n);
});

test("an apply whose answer is lost commits once", async () => {
  const applied = lossy("Transact", 2).apply([set(name, "dora", "Dora")], {
    conditions: [exists(name, "dora", false)],
  });
  await applied;
  assert.equal(await db.get(name, "dora"), "Dora");
});

test("snapshots do not change, and scans cross pages", async () => {
  const numbers = column("numbers", "n", integer);
  await db.createTable("numbers", { splitKeys: ["0500"] });
  const row = (i: number): string => String(i).padStart(4, "0");
  const rows = Array.from({ length: 2_500 }, (_, i) => row(i));
  await db.apply(rows.map((r, i) => set(numbers, r, BigInt(i))));
  await db.snapshot(async (reader) => {
    assert.equal(await reader.get(numbers, "0000"), 0n);
    await db.apply([set(numbers, "0001", -1n), remove(numbers, "2499")]);
    const read: string[] = [];
    for await (const cell of reader.scan(numbers)) {
      assert.equal(cell.value, BigInt(Number(cell.row)));
      read.push(cell.row as string);
    }
    assert.deepEqual(read, rows);
  });
  const last = await db.snapshot(async (reader) => {
    const found = [];
    for await (const cell of reader.scan(numbers, {}, { reverse: true, limit: 2 })) {
      found.push(cell.row);
    }
    return found;
  });
  assert.deepEqual(last, ["2498", "2497"]);
});

test("apply checks its conditions", async () => {
  await db.apply([set(name, "carol", "Carol")], { conditions: [exists(name, "carol", false)] });
  await assert.rejects(
    db.apply([set(name, "carol", "Other")], {
      conditions: [exists(name, "carol"), equals(name, "carol", "Dave")],
    }),
    (err) => err instanceof ConditionError && err.failed.length === 1 && err.failed[0] === 1,
  );
  assert.equal(await db.get(name, "carol"), "Carol");
});

test("rows and values may be any bytes", async () => {
  const raw = column("people", "raw", bytes);
  const row = Uint8Array.of(0xff, 0, 1);
  await db.apply([set(raw, row, Uint8Array.of(0xfe))]);
  assert.deepEqual(await db.get(raw, row), Uint8Array.of(0xfe));
});

test("the feed continues from a subscriber's position", async () => {
  const feed = column("feed", "n", integer);
  await db.createTable("feed", { splitKeys: ["m"] });
  await db.apply([set(feed, "a", 1n), set(feed, "z", 1n)]);
  const options = { ranges: [{ table: "feed" }], initial: true, subscriber: "test" };

  // read returns the changes up to the first resolved timestamp that covers them, and stores the position.
  const read = async (count: number): Promise<string[]> => {
    const changes = db.changes(options);
    const found: string[] = [];
    for await (const batch of changes) {
      for (const c of batch.changes) {
        found.push(`${c.row} ${c.value === undefined ? "-" : integer.decode(c.value)} ${c.initial}`);
      }
      if (batch.resolved !== undefined && found.length >= count) {
        await changes.advance(batch.resolved);
        break;
      }
    }
    return found.sort();
  };
  assert.deepEqual(await read(2), ["a 1 true", "z 1 true"]);
  await db.apply([set(feed, "a", 2n), remove(feed, "z")]);
  assert.deepEqual(await read(2), ["a 2 false", "z - false"]);
});

test("errors have a reason and a remedy", async () => {
  await assert.rejects(db.get(column("absent", "c"), "r"), (err) => {
    assert.ok(err instanceof PercolatorError);
    assert.equal(err.reason, Reason.NO_TABLE);
    assert.notEqual(err.remedy, "");
    return true;
  });
  const closed = connect(["127.0.0.1:1"]);
  await assert.rejects(closed.get(name, "r", { timeoutMs: 200 }), (err) => {
    return err instanceof PercolatorError && err.unanswered && err.reason === Reason.UNAVAILABLE;
  });
  const aborted = new AbortController();
  const waiting = closed.get(name, "r", { signal: aborted.signal });
  aborted.abort();
  await assert.rejects(waiting);
});

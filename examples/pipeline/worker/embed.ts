// The observer embed of the pipeline, in a process of its own: it buys the vectors of new texts.
//
//   node embed.js GATEWAY,... EMBEDDER_URL

import type { Transaction } from "percolator-client/node";
import { batchObserver, column, connect, RetryAfter, text } from "percolator-client/node";

const texts = column("texts", "text", text);
const vectors = column<number[]>("texts", "vector");

const [gateways = "127.0.0.1:7804", embedder = "http://127.0.0.1:7830"] = process.argv.slice(2);

// buy returns the vectors of texts, for which the embedder is paid once under each key.
async function buy(questions: { texts: string[]; keys: string[] }, signal: AbortSignal): Promise<number[][]> {
  const answer = await fetch(`${embedder}/embed`, { method: "POST", body: JSON.stringify(questions), signal }).catch(
    (error) => {
      throw new RetryAfter(0, "the embedder does not answer", { cause: error });
    },
  );
  if (answer.status === 429 || answer.status >= 500) {
    const wait = Number(answer.headers.get("retry-after") ?? 0);
    throw new RetryAfter(wait * 1000, `the embedder answered ${answer.status}`);
  }
  if (!answer.ok) {
    throw new Error(`the embedder answered ${answer.status}: ${await answer.text()}`);
  }
  return (await answer.json()) as number[][];
}

// A text has its hash as its row, and never changes: the row is the key under which its vector is paid for once.
async function embed(tx: Transaction, changes: readonly { row: unknown }[], signal: AbortSignal): Promise<void> {
  const found = await tx.getMany(texts, changes.map((c) => c.row as string));
  const keys = found.map((cell) => cell.row as string);
  const answers = await buy({ texts: found.map((cell) => cell.value), keys }, signal);
  keys.forEach((row, i) => tx.set(vectors, row, answers[i] as number[]));
}

const worker = connect(gateways.split(",")).observe([
  batchObserver("embed", texts, embed, { batch: 32, concurrency: 2 }),
], { onError: (error, what) => console.error(what, error instanceof RetryAfter ? error.message : error) });
process.once("SIGTERM", () => void worker.close());
await worker.ready;
console.log("ready");
await worker.ended;

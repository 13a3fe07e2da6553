import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";

import { binary, Cluster, freePorts } from "./cluster.js";

const run = promisify(execFile);
const pipeline = resolve(dirname(binary), "pipeline");
const worker = "../../examples/pipeline/worker";

// compile compiles the worker of the example in a folder of its own.
async function compile(dir: string): Promise<string> {
  const app = join(dir, "worker");
  await mkdir(join(app, "node_modules", "@types"), { recursive: true });
  await symlink(process.cwd(), join(app, "node_modules", "percolator-client"));
  await symlink(resolve("node_modules/@types/node"), join(app, "node_modules", "@types", "node"));
  for (const file of ["embed.ts", "package.json", "tsconfig.json"]) {
    await copyFile(join(worker, file), join(app, file));
  }
  await run(resolve("node_modules/.bin/tsc"), [], { cwd: app });
  return join(app, "embed.js");
}

async function started(process: ChildProcess): Promise<void> {
  await once(process.stdout as NodeJS.EventEmitter, "data");
}

async function kill(process: ChildProcess): Promise<void> {
  if (process.exitCode === null && process.signalCode === null) {
    const ended = once(process, "exit");
    process.kill("SIGKILL");
    await ended;
  }
}

interface Bill {
  readonly paid: number;
  readonly distinct: number;
}

// The pipeline's own program loads, changes and compares: `compare` computes the index from the documents alone.
test("the index stays in step while a node and a worker are killed", { timeout: 240_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "pipeline-"));
  const [port] = (await freePorts(1)) as [number];
  const [embedder, index] = [`127.0.0.1:${port}`, `127.0.0.1:${port + 1}`];
  const processes: ChildProcess[] = [];
  let cluster: Cluster | undefined;
  t.after(async () => {
    await Promise.all(processes.map(kill));
    await cluster?.stop();
    await rm(dir, { recursive: true });
  });
  const script = await compile(dir);
  const services = spawn(
    pipeline,
    ["services", "--embedder-addr", embedder, "--index-addr", index, "--rate", "100", "--file", join(dir, "vectors.jsonl")],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  processes.push(services);
  await started(services);
  const urls = ["--embedder", `http://${embedder}`, "--index", `http://${index}`];
  cluster = await Cluster.of(pipeline, 3, "--embed-apart", ...urls);
  const { gateways, listen } = cluster;
  const work = async (): Promise<ChildProcess> => {
    const started_ = spawn(process.execPath, [script, gateways.join(), `http://${embedder}`], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    processes.push(started_);
    await started(started_);
    return started_;
  };
  const call = (...args: string[]): Promise<{ stdout: string }> =>
    run(pipeline, [...args.slice(0, 1), "--addr", listen.join(), "--insecure", ...args.slice(1)], { timeout: 100_000 });
  const bill = async (): Promise<Bill> => (await fetch(`http://${embedder}/bill`)).json() as Promise<Bill>;

  await cluster.replicated();
  const first = await work();
  await work();
  const importing = call("import", "strings", "net/http");
  for (let end = performance.now() + 60_000; (await bill()).paid < 200; await pause(20)) {
    assert.ok(performance.now() < end, "no vectors are bought");
  }
  await kill(first);
  await cluster.kill(1);
  await importing;
  await call("remove", "strings/");
  await cluster.startNode(1);
  await work();
  await call("import", "sort");
  const { stdout } = await call("compare", ...urls);
  assert.match(stdout, /documents, [1-9]\d* pieces: equal/);
  const { paid, distinct } = await bill();
  assert.ok(paid > 500, `only ${paid} texts were paid for`);
  assert.equal(paid, distinct, "a text was paid for twice");
});

// A cluster of real node processes, which tests kill and start again.

import type { ChildProcess } from "node:child_process";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import type { Client } from "../src/node.js";
import { connect } from "../src/node.js";

const run = promisify(execFile);

export const binary = process.env["PERCOLATOR"] ?? "../../bin/percolator";

/** Cluster is some nodes on loopback. */
export class Cluster {
  private readonly processes: (ChildProcess | undefined)[] = [];

  private constructor(
    private readonly dir: string,
    readonly listen: readonly string[],
    readonly gateways: readonly string[],
    private readonly flags: readonly string[],
    private readonly program: string,
  ) {}

  /** Starts nodes and waits until a transaction commits. */
  static start(nodes: number, ...flags: string[]): Promise<Cluster> {
    return Cluster.of(binary, nodes, ...flags);
  }

  /** Starts nodes of a program. */
  static async of(program: string, nodes: number, ...flags: string[]): Promise<Cluster> {
    const dir = await mkdtemp(join(tmpdir(), "percolator-"));
    const ports = await freePorts(nodes);
    const listen = ports.map((port) => `127.0.0.1:${port}`);
    const gateways = ports.map((port) => `127.0.0.1:${port + 4}`);
    const cluster = new Cluster(dir, listen, gateways, flags, program);
    await Promise.all(listen.map((_, i) => cluster.startNode(i)));
    await cluster.client().createTable("ready", { timeoutMs: 60_000 });
    return cluster;
  }

  /** Returns a client of all gateways. */
  client(): Client {
    return connect(this.gateways);
  }

  /** Starts a node, again with its data. */
  async startNode(i: number): Promise<void> {
    const log = await open(join(this.dir, `${i}.log`), "a");
    const others = this.listen.filter((_, j) => j !== i);
    const join_ = others.length > 0 ? ["--join", others.join(), "--bootstrap-expect", String(this.listen.length)] : [];
    this.processes[i] = spawn(
      this.program,
      ["start", "--dir", join(this.dir, `${i}`), "--insecure", "--listen", this.listen[i] as string,
        "--http", "", "--gateway", this.gateways[i] as string, ...join_, ...this.flags],
      { stdio: ["ignore", log.fd, log.fd] },
    );
    await log.close();
  }

  /** Waits until each tablet has a replica on three nodes. */
  async replicated(): Promise<void> {
    for (const end = performance.now() + 60_000; ; await sleep(100)) {
      const args = ["tablet", "ls", "--addr", this.listen.join(), "--insecure", "-o", "json"];
      const { stdout } = await run(this.program, args).catch(() => ({ stdout: '{"nodes":[]}' }));
      const tablets = stdout.trim().split("\n").map((line) => JSON.parse(line) as { nodes: number[] });
      if (tablets.every((tablet) => tablet.nodes.length === 3)) {
        return;
      }
      if (performance.now() > end) {
        throw new Error(`not replicated: ${stdout}`);
      }
    }
  }

  /** Kills a node with SIGKILL and waits for its end. */
  async kill(i: number): Promise<void> {
    const node = this.processes[i];
    this.processes[i] = undefined;
    if (node !== undefined && node.exitCode === null) {
      const ended = once(node, "exit");
      node.kill("SIGKILL");
      await ended;
    }
  }

  /** Kills all nodes and removes their directories. */
  async stop(): Promise<void> {
    await Promise.all(this.processes.map((_, i) => this.kill(i)));
    await rm(this.dir, { recursive: true });
  }
}

// freePorts returns the first port of blocks of five that are free now, for clients, nodes, gossip, HTTP
// and the gateway.
export async function freePorts(blocks: number): Promise<number[]> {
  const found: number[] = [];
  for (let attempt = 0; found.length < blocks; attempt++) {
    if (attempt === 1_000) {
      throw new Error("no free ports");
    }
    const first = 20_000 + 5 * Math.floor(Math.random() * 2_400);
    const free = await Promise.all([0, 1, 2, 3, 4].map((i) => isFree(first + i)));
    if (!found.includes(first) && free.every(Boolean)) {
      found.push(first);
    }
  }
  return found;
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

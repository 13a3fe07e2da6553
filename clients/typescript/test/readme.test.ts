import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { binary, freePorts } from "./cluster.js";

const run = promisify(execFile);

// The commands and the programs of the README, with other paths and ports than those that it names.
test("the README's examples print what it says", { timeout: 180_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "readme-"));
  const [port] = await freePorts(1);
  const node = binary.startsWith("/") ? binary : join(process.cwd(), binary);
  const adapted = (await readFile("README.md", "utf8"))
    .replaceAll("/tmp", dir)
    .replaceAll("127.0.0.1:7804", `127.0.0.1:${(port as number) + 4}`)
    .replace("make build\n", "")
    .replace("bin/percolator start", `exec ${node} start --listen 127.0.0.1:${port} --http ''`)
    .replace(" &\n", "\n")
    .replace(" && npm ci", "");
  const blocks = [...adapted.matchAll(/```(\w*)\n([^]*?)```/g)].map((m) => m[2] as string);
  const [start, install, transfer, compile, output, shout, compileShout, outputOfShout] = blocks;

  const started = spawn("bash", ["-c", start as string], { stdio: "ignore" });
  t.after(async () => {
    started.kill("SIGKILL");
    await rm(dir, { recursive: true });
  });
  await run("bash", ["-ec", install as string], { cwd: "../.." });
  const app = join(dir, "percolator-app");
  await writeFile(join(app, "transfer.ts"), transfer as string);
  assert.equal((await run("bash", ["-ec", compile as string], { cwd: app })).stdout, output);
  await writeFile(join(app, "shout.ts"), shout as string);
  assert.equal((await run("bash", ["-ec", compileShout as string], { cwd: app })).stdout, outputOfShout);
});

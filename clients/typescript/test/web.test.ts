import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import type { IncomingMessage, Server } from "node:http";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { build } from "esbuild";

import { column, connect, set } from "../src/node.js";
import { binary, Cluster, freePorts } from "./cluster.js";

const chromium = process.env["CHROMIUM"] ?? "/usr/bin/chromium";

// The page reports to the server that it came from, so that the browser needs no remote control.
test("a page in Chromium transacts and scans", { timeout: 120_000 }, async (t) => {
  let report: (text: string) => void = () => undefined;
  const server = await serve(createServer(), await pages("test/page.ts", (text) => report(text)));
  t.after(() => server.close());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  for (const allowed of [true, false]) {
    const cluster = await Cluster.start(1, "--gateway-origin", allowed ? origin : "http://127.0.0.1:1");
    try {
      const greeting = column<string>("web", "greeting");
      await cluster.client().createTable("web");
      const reported = new Promise<string>((resolve) => (report = resolve));
      await visit(`${origin}/?gateway=${cluster.gateways[0]}`, reported);
      assert.match(await reported, allowed ? /^read hello, scanned 1$/ : /^error/);
      const found = await cluster.client().get(greeting, "page");
      assert.equal(found, allowed ? "hello" : undefined);
    } finally {
      await cluster.stop();
    }
  }
});

// The node has certificates, and the browser has none, but a token.
test("a page in Chromium observes with a token", { timeout: 120_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "certs-"));
  t.after(() => rm(dir, { recursive: true }));
  const cli = async (...args: string[]): Promise<string> => (await promisify(execFile)(binary, args)).stdout.trim();
  await cli("cert", "create-ca", "--certs", dir);
  await cli("cert", "create-node", "n1", "--host", "127.0.0.1", "--ca-dir", dir, "--certs", join(dir, "n1"));
  await cli("cert", "create-client", "op", "--role", "operator", "--ca-dir", dir, "--certs", join(dir, "op"));
  const file = (name: string): string => readFileSync(join(dir, name), "utf8");

  let report: (text: string) => void = () => undefined;
  const reported = new Promise<string>((resolve) => (report = resolve));
  const tls = { cert: file("n1/node.crt"), key: file("n1/node.key") };
  const server = await serve(createSecureServer(tls), await pages("test/observer-page.ts", (text) => report(text)));
  t.after(() => server.close());
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const [port] = await freePorts(1);
  const gateway = `127.0.0.1:${(port as number) + 4}`;
  const node = spawn(binary, ["start", "--dir", join(dir, "data"), "--certs", join(dir, "n1"), "--listen", `127.0.0.1:${port}`,
    "--http", "", "--gateway", gateway, "--gateway-origin", origin], { stdio: "ignore" });
  t.after(async () => {
    const ended = once(node, "exit");
    node.kill("SIGKILL");
    await ended;
  });
  const operator = connect([gateway], { ca: file("ca.crt"), cert: file("op/client.crt"), key: file("op/client.key") });
  await operator.createTable("web", { timeoutMs: 60_000 });
  const token = await cli("token", "create", "page", "--role", "observer", "--certs", join(dir, "op"), "--addr", `127.0.0.1:${port}`);

  let done: () => void = () => undefined;
  const visited = visit(`${origin}/?gateway=${gateway}#${token}`, new Promise<void>((resolve) => (done = resolve)));
  try {
    assert.equal(await Promise.race([reported, visited]), "ready");
    const db = connect([gateway], { ca: file("ca.crt"), token });
    const { commitTimestamp } = await db.apply([set(column<string>("web", "greeting"), "page", "hello")]);
    await db.waitFor(commitTimestamp);
    assert.equal(await db.get(column<string>("web", "loud"), "page"), "HELLO");
  } finally {
    done();
    await visited;
  }
});

// pages returns what answers requests for a page with a script, and calls report with what the page reports.
async function pages(script: string, report: (text: string) => void): Promise<Answer> {
  const bundle = await build({ entryPoints: [script], bundle: true, format: "esm", write: false });
  return (request, body) => {
    if (request.url === "/report") {
      report(body);
      return "";
    }
    return `<!doctype html><title>test</title><script type="module">${bundle.outputFiles[0]?.text}</script>`;
  };
}

type Answer = (request: IncomingMessage, body: string) => string;

async function serve(server: Server, answer: Answer): Promise<Server> {
  server.on("request", (request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      response.setHeader("content-type", "text/html; charset=utf-8");
      response.end(answer(request, body));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function visit(url: string, until: Promise<unknown>): Promise<void> {
  const profile = await mkdtemp(join(tmpdir(), "chromium-"));
  const browser = spawn(
    chromium,
    ["--headless=new", "--ignore-certificate-errors", "--no-sandbox", "--disable-gpu", "--no-first-run", `--user-data-dir=${profile}`, url],
    { stdio: "ignore" },
  );
  const ended = once(browser, "exit");
  await Promise.race([until, ended]);
  browser.kill("SIGKILL");
  await ended;
  await rm(profile, { recursive: true, maxRetries: 10 });
}

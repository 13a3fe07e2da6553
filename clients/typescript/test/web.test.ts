import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import type { IncomingMessage, Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { build } from "esbuild";

import { column } from "../src/node.js";
import { Cluster } from "./cluster.js";

const chromium = process.env["CHROMIUM"] ?? "/usr/bin/chromium";

// The page reports to the server that it came from, so that the browser needs no remote control.
test("a page in Chromium transacts and scans", { timeout: 120_000 }, async (t) => {
  const script = await build({
    entryPoints: ["test/page.ts"],
    bundle: true,
    format: "esm",
    write: false,
  });
  let report: (text: string) => void = () => undefined;
  const pages = (request: IncomingMessage, body: string): string => {
    if (request.url === "/report") {
      report(body);
      return "";
    }
    return `<!doctype html><title>test</title><script type="module">${script.outputFiles[0]?.text}</script>`;
  };
  const server = await serve(pages);
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

async function serve(answer: (request: IncomingMessage, body: string) => string): Promise<Server> {
  const server = createServer((request, response) => {
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

async function visit(url: string, until: Promise<string>): Promise<void> {
  const profile = await mkdtemp(join(tmpdir(), "chromium-"));
  const browser = spawn(
    chromium,
    ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", `--user-data-dir=${profile}`, url],
    { stdio: "ignore" },
  );
  const ended = once(browser, "exit");
  await Promise.race([until, ended]);
  browser.kill("SIGKILL");
  await ended;
  await rm(profile, { recursive: true, maxRetries: 10 });
}

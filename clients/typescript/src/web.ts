// Entry point for browsers.

import { createConnectTransport } from "@connectrpc/connect-web";

import { Client } from "./client.js";
import { Endpoints } from "./endpoints.js";

export * from "./index.js";

/**
 * Connects to gateways, `host:port` each, which must allow the page's origin. The protocol is that of the
 * page, so that a page of HTTPS uses HTTPS; certificates are the browser's.
 */
export function connect(addresses: readonly string[]): Client {
  return new Client(
    new Endpoints(addresses, (address) =>
      createConnectTransport({ baseUrl: `${location.protocol}//${address}` }),
    ),
  );
}

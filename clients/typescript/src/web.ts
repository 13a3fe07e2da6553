// Entry point for browsers.

import { createConnectTransport } from "@connectrpc/connect-web";

import { Client } from "./client.js";
import { bearer, Endpoints } from "./endpoints.js";

export * from "./index.js";

/**
 * Connects to gateways, `host:port` each, which must allow the page's origin. The protocol is that of the
 * page, so that a page of HTTPS uses HTTPS. Without a token, one that `percolator token create` has printed, the browser needs
 * a client certificate.
 */
export function connect(addresses: readonly string[], options: { readonly token?: string } = {}): Client {
  return new Client(
    new Endpoints(addresses, (address) =>
      createConnectTransport({
        baseUrl: `${location.protocol}//${address}`,
        interceptors: bearer(options.token),
      }),
    ),
  );
}

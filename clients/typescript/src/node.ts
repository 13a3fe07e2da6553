// Entry point for Node.js.

import type { SecureContextOptions } from "node:tls";

import { createConnectTransport } from "@connectrpc/connect-node";

import { Client } from "./client.js";
import { bearer, Endpoints } from "./endpoints.js";

export * from "./index.js";

/** TLS are the contents of the files of a client's certificate, or a token in its place. */
export interface TLS {
  readonly ca: SecureContextOptions["ca"];
  /** What `percolator token create` has printed. */
  readonly token?: string;
  readonly cert?: SecureContextOptions["cert"];
  readonly key?: SecureContextOptions["key"];
}

/** Connects to gateways, `host:port` each. Without tls the connection is plain text. */
export function connect(addresses: readonly string[], tls?: TLS): Client {
  return new Client(
    new Endpoints(addresses, (address) =>
      createConnectTransport({
        baseUrl: `${tls ? "https" : "http"}://${address}`,
        httpVersion: "2",
        ...(tls ? { nodeOptions: { ca: tls.ca, cert: tls.cert, key: tls.key } } : {}),
        interceptors: bearer(tls?.token),
      }),
    ),
  );
}

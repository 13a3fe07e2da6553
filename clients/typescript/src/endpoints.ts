import type { DescService } from "@bufbuild/protobuf";
import type { CallOptions, Client as ServiceClient, Interceptor, Transport } from "@connectrpc/connect";
import { createClient } from "@connectrpc/connect";

import { Failure_Reason } from "./gen/gateway/v1/gateway_pb.js";
import { toPercolatorError } from "./errors.js";
import type { PercolatorError } from "./errors.js";

/** Options of one call. */
export interface Options {
  /** Cancels the call. */
  readonly signal?: AbortSignal;
  /** How long the call may take with its retries. Defaults to 30,000. */
  readonly timeoutMs?: number;
}

const defaultTimeoutMs = 30_000;
const firstPauseMs = 10;
const longestPauseMs = 1_000;
const attemptTimeoutMs = 10_000;

/** Deadline bounds a call and its retries. */
export class Deadline {
  private readonly end: number;
  private pauseMs = firstPauseMs;

  constructor(private readonly options: Options) {
    this.end = performance.now() + (options.timeoutMs ?? defaultTimeoutMs);
  }

  /** Returns the options of the next attempt. */
  attempt(): CallOptions {
    const left = Math.max(1, this.end - performance.now());
    const options = { timeoutMs: Math.ceil(Math.min(left, attemptTimeoutMs)) };
    return this.options.signal ? { ...options, signal: this.options.signal } : options;
  }

  /**
   * Waits before a repetition, twice as long each time, up to 1 s; at least as long as the failure
   * says. Throws the failure if the deadline would pass or the signal is aborted.
   */
  async pause(failure: Error & { retryAfterMs?: number }): Promise<void> {
    const wait = Math.max((0.5 + Math.random() / 2) * this.pauseMs, failure.retryAfterMs ?? 0);
    this.pauseMs = Math.min(2 * this.pauseMs, longestPauseMs);
    if (performance.now() + wait > this.end || this.options.signal?.aborted) {
      throw failure;
    }
    await sleep(wait, this.options.signal);
  }
}

/** Waits; a signal that aborts rejects with its reason. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** Returns what sends a token with each call; nothing without one. */
export function bearer(token: string | undefined): Interceptor[] {
  if (token === undefined) {
    return [];
  }
  return [
    (next) => (request) => {
      request.header.set("Authorization", `Bearer ${token}`);
      return next(request);
    },
  ];
}

/** Endpoints are the gateways of a cluster. Calls go to one of them until it fails. */
export class Endpoints {
  private current = 0;
  private readonly transports = new Map<string, Transport>();

  constructor(
    private readonly addresses: readonly string[],
    private readonly dial: (address: string) => Transport,
  ) {
    if (addresses.length === 0) {
      throw new TypeError("addresses is empty; it must name at least one gateway");
    }
    this.current = Math.floor(Math.random() * addresses.length);
  }

  /** Returns all addresses. */
  get all(): readonly string[] {
    return this.addresses;
  }

  /** Returns the address that calls go to. */
  get address(): string {
    return this.addresses[this.current % this.addresses.length] as string;
  }

  /** Sends later calls elsewhere, unless an earlier failure has already. */
  leave(address: string): void {
    if (address === this.address) {
      this.current++;
    }
  }

  /** Returns the client of a service at an address. */
  service<S extends DescService>(service: S, address: string): ServiceClient<S> {
    let transport = this.transports.get(address);
    if (transport === undefined) {
      transport = this.dial(address);
      this.transports.set(address, transport);
    }
    return createClient(service, transport);
  }

  /**
   * Calls a service, and repeats the call, elsewhere after a failed connection, until it succeeds, fails
   * for good, or the options' deadline passes. After a failure for which repeatable is false it is not repeated.
   */
  async repeat<S extends DescService, T>(
    service: S,
    options: Options,
    call: (client: ServiceClient<S>, options: CallOptions) => Promise<T>,
    repeatable: (failure: PercolatorError) => boolean = () => true,
  ): Promise<T> {
    const deadline = new Deadline(options);
    for (;;) {
      const address = this.address;
      try {
        return await call(this.service(service, address), deadline.attempt());
      } catch (thrown) {
        const failure = this.note(address, thrown);
        if (!failure.temporary || !repeatable(failure)) {
          throw failure;
        }
        await deadline.pause(failure);
      }
    }
  }

  /** Converts a failure at an address, and leaves an address that did not answer in time. */
  note(address: string, thrown: unknown): PercolatorError {
    const failure = toPercolatorError(thrown);
    if (
      failure.unanswered ||
      failure.reason === Failure_Reason.STARTING ||
      failure.reason === Failure_Reason.DEADLINE
    ) {
      this.leave(address);
    }
    return failure;
  }
}

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client as ServiceClient } from "@connectrpc/connect";
import { Code, ConnectError } from "@connectrpc/connect";

import type { Column } from "./codec.js";
import type { Endpoints } from "./endpoints.js";
import { sleep } from "./endpoints.js";
import { PercolatorError, Reason, toPercolatorError } from "./errors.js";
import type {
  FinishRequestSchema,
  ObserverRegistrationSchema,
  ObserveResponse,
  Run,
  RunFailureSchema,
} from "./gen/gateway/v1/gateway_pb.js";
import { Gateway, RunFailure_Kind, Work } from "./gen/gateway/v1/gateway_pb.js";
import { Transaction } from "./transaction.js";
import type { Row } from "./wire.js";
import { rowFields } from "./wire.js";

/** Observed is a change for which an observer runs. */
export interface Observed {
  readonly row: Row;
  /** Of the newest change of the row's cell that the run acknowledges. */
  readonly commitTimestamp: bigint;
  /** Failed runs for the change so far. */
  readonly attempt: number;
}

/** ObserverOptions are those of one observer. Its name, column and kind must be the same in all programs. */
export interface ObserverOptions {
  /** The column is notify-only: `Transaction.notify` starts runs, which acknowledge nothing and may repeat. */
  readonly weak?: boolean;
  /** Runs at a time, at each node. Default: as many as all observers together (WorkOptions.concurrency). */
  readonly concurrency?: number;
  /** How long a run may take. Defaults to 30,000; at most 600,000. */
  readonly deadlineMs?: number;
  /** Failed runs before a change is parked. Defaults to 10. */
  readonly maxAttempts?: number;
  /** Consecutive conflicts that count as a failed run. Defaults to 64. */
  readonly maxConflicts?: number;
  /** Time without changes of a cell before its run. Defaults to 0. */
  readonly debounceMs?: number;
  /** Of what the function does; stored with each acknowledgment. Defaults to 0. */
  readonly version?: number;
  /** Priorities of rows: the longest prefix counts, greater ones run first. Default: 0. */
  readonly priorities?: readonly { readonly prefix: Row; readonly priority: number }[];
}

/** Observer is a function for the changes of a column. */
export interface Observer {
  readonly registration: MessageInitShape<typeof ObserverRegistrationSchema>;
  readonly run: (tx: Transaction, changes: readonly Observed[], signal: AbortSignal) => Promise<void>;
}

/**
 * Returns an observer of a column. When its function returns, the transaction commits, and acknowledges the
 * change: at most one commits for each change. It runs again after a conflict, so it must have no other effect than
 * the transaction's writes that must not repeat. What it throws counts as a failed run, and the change runs again; see
 * RetryAfter and NotReady. The signal aborts when the run can no longer commit.
 */
export function observer(
  name: string,
  column: Column<never> | Column<unknown>,
  run: (tx: Transaction, change: Observed, signal: AbortSignal) => Promise<void>,
  options: ObserverOptions = {},
): Observer {
  return {
    registration: registration(name, column, 1, options),
    run: (tx, changes, signal) => run(tx, changes[0] as Observed, signal),
  };
}

/**
 * Returns an observer whose function handles several changes in one transaction, 1 to `batch` (default 100, at most
 * 1,000), of different rows. If it throws, each half runs again, down to the change that fails; PartialFailure names the
 * changes that fail, and the others commit.
 */
export function batchObserver(
  name: string,
  column: Column<never> | Column<unknown>,
  run: (tx: Transaction, changes: readonly Observed[], signal: AbortSignal) => Promise<void>,
  options: ObserverOptions & { readonly batch?: number } = {},
): Observer {
  return { registration: registration(name, column, options.batch ?? 100, options), run };
}

/**
 * RetryAfter is thrown by an observer whose outside service refuses it: the whole observer waits, in all
 * processes, and nothing counts as a failed run. With waitMs 0 the wait grows from 0.1 to 0.8 s.
 */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";

  constructor(
    readonly waitMs: number,
    message = "an outside service refuses",
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** NotReady is thrown by an observer that needs something that is not there yet: only every 64th counts. */
export class NotReady extends Error {
  override readonly name = "NotReady";
}

/** PartialFailure is thrown by the function of a batchObserver that has written nothing for some rows. */
export class PartialFailure extends Error {
  override readonly name = "PartialFailure";

  constructor(readonly failed: ReadonlyMap<Row, unknown>) {
    super(`${failed.size} changes of a batch failed`);
  }
}

/** WorkOptions are those of a worker. */
export interface WorkOptions {
  /** Runs at a time, at each node. Defaults to 16; at most 256. */
  readonly concurrency?: number;
  /**
   * Silence after which the cluster hands the worker's changes to others. A function that blocks JavaScript's event
   * loop for as long loses its runs. Defaults to 1,000; from 500 to 60,000.
   */
  readonly leaseMs?: number;
  /** Tables that are created if they do not exist, in addition to those of the observed columns. */
  readonly tables?: readonly string[];
  /** Retires the worker, as `close` does. */
  readonly signal?: AbortSignal;
  /** Called for each failed run and each lost connection. Default: console.warn. */
  readonly onError?: (error: unknown, what: string) => void;
}

/** Worker runs observers until it is closed. */
export interface Worker {
  /** Resolves once a node has accepted the observers. */
  readonly ready: Promise<void>;
  /** Resolves when the worker has ended. Rejects if the cluster refuses the observers. */
  readonly ended: Promise<void>;
  /** Accepts nothing more, and waits for the running functions. */
  close(): Promise<void>;
}

/** Runs observers, with a stream from each gateway. */
export function work(endpoints: Endpoints, observers: readonly Observer[], options: WorkOptions): Worker {
  const tables = new Set([...observers.map((o) => o.registration.table ?? ""), ...(options.tables ?? [])]);
  const request = {
    observers: observers.map((o) => o.registration),
    tables: [...tables].map((name) => ({ name })),
    concurrency: options.concurrency ?? 0,
    leaseMs: options.leaseMs ?? 0,
  };
  const functions = new Map(observers.map((o) => [o.registration.name ?? "", o.run]));
  let started: () => void = () => undefined;
  let refused: (reason: unknown) => void = () => undefined;
  const ready = new Promise<void>((resolve, reject) => ([started, refused] = [resolve, reject]));
  ready.catch(() => undefined); // ended has the reason, too
  const links = endpoints.all.map(
    (address) => new Link(endpoints, address, request, functions, options.onError ?? warn, started),
  );
  const retire = (): void => links.forEach((link) => link.retire());
  const ended = Promise.all(links.map((link) => link.serve())).then(
    () => refused(new Error("the worker was closed before a node had accepted it")),
    (reason) => {
      retire();
      refused(reason);
      throw reason;
    },
  );
  options.signal?.addEventListener("abort", retire, { once: true });
  if (options.signal?.aborted) {
    retire();
  }
  return {
    ready,
    ended,
    close: () => {
      retire();
      return ended;
    },
  };
}

function warn(error: unknown, what: string): void {
  console.warn(`percolator: ${what}:`, error);
}

const firstPauseMs = 50;
const longestPauseMs = 2_000;
const callTimeoutMs = 10_000;
const finishAttempts = 20;

// Link is the worker's stream from one node, opened again after it breaks.
class Link {
  private readonly work: ServiceClient<typeof Work>;
  private readonly gateway: ServiceClient<typeof Gateway>;
  private readonly retired = new AbortController();
  private worker = "";
  private renewal: ReturnType<typeof setInterval> | undefined;
  private silent = 0; // ticks of the renewal without a message
  private runs = new Map<string, AbortController>(); // by session, of the present stream

  constructor(
    endpoints: Endpoints,
    private readonly address: string,
    private readonly request: Parameters<ServiceClient<typeof Work>["observe"]>[0],
    private readonly functions: ReadonlyMap<string, Observer["run"]>,
    private readonly onError: (error: unknown, what: string) => void,
    private readonly started: () => void,
  ) {
    this.work = endpoints.service(Work, address);
    this.gateway = endpoints.service(Gateway, address);
  }

  // retire ends the stream once its runs have ended.
  retire(): void {
    this.retired.abort();
    if (this.worker !== "") {
      this.work.retire({ worker: this.worker }).catch(() => undefined); // the stream has ended by itself
    }
  }

  // serve receives runs until the link is retired. It throws if the node refuses the observers.
  async serve(): Promise<void> {
    for (let pauseMs = firstPauseMs; !this.retired.signal.aborted; ) {
      const failure = await this.stream();
      if (this.retired.signal.aborted) {
        return;
      }
      if (!failure.temporary && failure.reason !== Reason.NO_TABLE) {
        throw failure;
      }
      pauseMs = this.worker !== "" ? firstPauseMs : Math.min(2 * pauseMs, longestPauseMs);
      if (pauseMs <= 2 * firstPauseMs) {
        this.onError(failure, `no stream from ${this.address}; it is tried again`);
      }
      this.worker = "";
      await sleep((0.5 + Math.random() / 2) * pauseMs, this.retired.signal).catch(() => undefined);
    }
  }

  // stream receives one stream, and returns why it has ended.
  private async stream(): Promise<PercolatorError> {
    const ending = new AbortController();
    try {
      for await (const m of this.work.observe(this.request, { signal: ending.signal, timeoutMs: 0 })) {
        this.silent = 0;
        this.receive(m, ending);
      }
      return toPercolatorError(new ConnectError("the node has ended the stream", Code.Unavailable));
    } catch (thrown) {
      return toPercolatorError(thrown);
    } finally {
      clearInterval(this.renewal);
      this.runs.forEach((run) => run.abort());
      this.runs.clear();
    }
  }

  private receive(m: ObserveResponse, ending: AbortController): void {
    if (m.started !== undefined) {
      this.worker = m.started.worker;
      this.renewal = setInterval(() => this.renew(ending), m.started.leaseMs / 4);
      this.started();
      if (this.retired.signal.aborted) {
        this.retire();
      }
    }
    for (const session of m.canceled) {
      this.runs.get(session)?.abort();
    }
    for (const run of m.runs) {
      void this.perform(run);
    }
  }

  // renew shows that the worker lives, and ends the stream if the node does not answer or knows it no more.
  private renew(ending: AbortController): void {
    if (++this.silent > 12) {
      ending.abort(new ConnectError("the node is silent", Code.Unavailable));
      return;
    }
    this.work.renew({ worker: this.worker }, { timeoutMs: callTimeoutMs }).catch((thrown) => {
      if (toPercolatorError(thrown).reason === Reason.SESSION_ENDED) {
        ending.abort(new ConnectError("the worker's lease has ended", Code.Unavailable));
      }
    });
  }

  // perform runs a function and finishes its run.
  private async perform(run: Run): Promise<void> {
    const controller = new AbortController();
    this.runs.set(run.session, controller);
    const calls = {
      gateway: this.gateway,
      snapshot: { case: "session" as const, value: run.session },
      attempt: () => ({ timeoutMs: callTimeoutMs, signal: controller.signal }),
    };
    const changes = run.changes.map((c) => ({
      row: c.rowAs.value ?? "",
      commitTimestamp: c.commitTimestamp,
      attempt: c.attempt,
    }));
    const tx = new Transaction(calls, run.session, run.startTimestamp);
    const request: MessageInitShape<typeof FinishRequestSchema> = { session: run.session };
    try {
      const perform = this.functions.get(run.observer);
      if (perform === undefined) {
        throw new Error(`no observer ${run.observer}`);
      }
      await perform(tx, changes, controller.signal);
      Object.assign(request, tx.take());
    } catch (thrown) {
      if (thrown instanceof PartialFailure) {
        Object.assign(request, tx.take(), {
          failedChanges: [...thrown.failed].map(([row, error]) => ({ rowAs: rowFields(row), failure: failureOf(error) })),
        });
      } else {
        request.failed = failureOf(thrown);
      }
      if (!controller.signal.aborted) {
        this.onError(thrown, `a run of observer ${run.observer} failed`);
      }
    }
    await this.finish(request, controller.signal);
    this.runs.delete(run.session);
  }

  // finish sends the end of a run, again if the answer is lost: the node performs it once. The node ends the run itself
  // if the request does not arrive.
  private async finish(
    request: MessageInitShape<typeof FinishRequestSchema>,
    signal: AbortSignal,
  ): Promise<void> {
    for (let attempt = 1; !signal.aborted; attempt++) {
      try {
        await this.work.finish(request, { timeoutMs: callTimeoutMs, signal });
        return;
      } catch (thrown) {
        const failure = toPercolatorError(thrown);
        if (signal.aborted || failure.reason === Reason.SESSION_ENDED) {
          return;
        }
        if (attempt === finishAttempts || !(failure.temporary || failure.reason === Reason.SESSION_BUSY)) {
          this.onError(failure, "a run was not finished");
          if (request.failed !== undefined) {
            return;
          }
          request = { session: request.session ?? "", failed: failureOf(failure) };
          attempt = 0;
        }
        await sleep(10 * attempt, signal).catch(() => undefined);
      }
    }
  }
}

function failureOf(error: unknown): MessageInitShape<typeof RunFailureSchema> {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  if (error instanceof RetryAfter) {
    return { message, kind: RunFailure_Kind.RETRY_AFTER, retryAfterMs: Math.max(0, Math.ceil(error.waitMs)) };
  }
  const unavailable = error instanceof NotReady || (error instanceof PercolatorError && error.temporary);
  return { message, kind: unavailable ? RunFailure_Kind.UNAVAILABLE : RunFailure_Kind.UNSPECIFIED };
}

function registration(
  name: string,
  column: Column<never> | Column<unknown>,
  batch: number,
  options: ObserverOptions,
): Observer["registration"] {
  return {
    name,
    table: column.table,
    columnAs: { case: "column", value: column.name },
    batch,
    weak: options.weak ?? false,
    concurrency: options.concurrency ?? 0,
    deadlineMs: options.deadlineMs ?? 0,
    maxAttempts: options.maxAttempts ?? 0,
    maxConflicts: options.maxConflicts ?? 0,
    debounceMs: options.debounceMs ?? 0,
    version: options.version ?? 0,
    priorities: (options.priorities ?? []).map(({ prefix, priority }) => ({
      prefixAs:
        typeof prefix === "string" ? { case: "prefix", value: prefix } : { case: "prefixBytes", value: prefix },
      priority,
    })),
  };
}

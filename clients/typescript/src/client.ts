import type { MessageInitShape } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";

import type { Changes, ChangesOptions } from "./changes.js";
import { changes } from "./changes.js";
import type { Column } from "./codec.js";
import type { Options } from "./endpoints.js";
import { Deadline, Endpoints } from "./endpoints.js";
import { ConditionError, PercolatorError } from "./errors.js";
import type { BeginRequestSchema, BeginResponse } from "./gen/gateway/v1/gateway_pb.js";
import { Control, Gateway } from "./gen/gateway/v1/gateway_pb.js";
import type { Calls, Reader } from "./transaction.js";
import { SnapshotReader, Transaction } from "./transaction.js";
import type { Condition, Row } from "./wire.js";
import type { Observer, Worker, WorkOptions } from "./work.js";
import { work } from "./work.js";
import { cellOf, wireCondition, wireKey, wireWrite } from "./wire.js";

/** TransactOptions are options of a transaction. */
export interface TransactOptions extends Options {
  /** Groups transactions of one kind in the nodes' metrics. At most 64 bytes. */
  readonly name?: string;
  /**
   * Whether a transaction whose outcome was lost is looked up before it runs again, at the cost of one more
   * cell for each commit. Defaults to true. With false, `transact` throws an error with
   * `maybeCommitted` then.
   */
  readonly exactlyOnce?: boolean;
}

/** Result is that of a committed transaction. */
export interface Result<T> {
  /** What the function has returned. */
  readonly value: T;
  /** The start timestamp if it has written nothing. */
  readonly commitTimestamp: bigint;
}

/** Write is one of an apply. */
export type Write =
  | { readonly column: Column<never>; readonly row: Row; readonly delete: true }
  | { readonly column: Column<never>; readonly row: Row; readonly encoded: Uint8Array };

/** Returns a write of a cell, for `apply`. */
export function set<T>(column: Column<T>, row: Row, value: T): Write {
  return { column: column as Column<never>, row, encoded: column.codec.encode(value) };
}

/** Returns a deletion of a cell, for `apply`. */
export function remove<T>(column: Column<T>, row: Row): Write {
  return { column: column as Column<never>, row, delete: true };
}

/** Returns the condition that a cell has a value, for `apply`. */
export function equals<T>(column: Column<T>, row: Row, value: T): Condition {
  return {
    column: column as Column<never>,
    row,
    is: { case: "equalsBytes", value: column.codec.encode(value) },
  };
}

/** Returns the condition that a cell exists, or that it does not, for `apply`. */
export function exists<T>(column: Column<T>, row: Row, found = true): Condition {
  return { column: column as Column<never>, row, is: { case: "exists", value: found } };
}

const leaseMs = 10_000;

/** Client reads and writes a cluster through its gateways. It has no state that a crash could lose. */
export class Client {
  constructor(private readonly endpoints: Endpoints) {}

  /**
   * Runs a function in a transaction and commits it. After a conflict, or if its node fails, it runs the
   * function again, until it commits or the deadline passes. The function must have no other effect than
   * the transaction's writes. What it throws rolls the transaction back.
   */
  async transact<T>(
    run: (tx: Transaction) => Promise<T>,
    options: TransactOptions = {},
  ): Promise<Result<T>> {
    const deadline = new Deadline(options);
    const state: Attempts<T> = {
      name: options.name ?? "",
      idempotencyKey: (options.exactlyOnce ?? true) ? crypto.randomUUID() : "",
      committing: false,
    };
    for (;;) {
      try {
        return await this.attempt(run, state, deadline);
      } catch (thrown) {
        if (!(thrown instanceof PercolatorError)) {
          throw thrown;
        }
        const lost = state.committing && thrown.maybeCommitted && state.idempotencyKey === "";
        if (!thrown.temporary || lost) {
          throw thrown;
        }
        await deadline.pause(thrown);
      }
    }
  }

  private async attempt<T>(
    run: (tx: Transaction) => Promise<T>,
    state: Attempts<T>,
    deadline: Deadline,
  ): Promise<Result<T>> {
    state.committing = false;
    const { name, idempotencyKey } = state;
    const session = await this.begin({ name, idempotencyKey, leaseMs }, deadline);
    if (state.ran && session.begun.alreadyCommitted !== 0n) {
      return { value: state.ran.value, commitTimestamp: session.begun.alreadyCommitted };
    }
    try {
      const tx = new Transaction(session.calls, session.begun.session, session.begun.startTimestamp);
      const value = await run(tx);
      state.ran = { value };
      if (!(await tx.flush())) {
        session.end();
        return { value, commitTimestamp: session.begun.startTimestamp };
      }
      state.committing = true;
      const { commitTimestamp } = await session.calls.gateway.commit(
        { session: session.begun.session },
        deadline.attempt(),
      );
      return { value, commitTimestamp };
    } catch (thrown) {
      if (!state.committing) {
        session.end();
      }
      throw thrown instanceof PercolatorError || thrown instanceof ConnectError
        ? this.endpoints.note(session.address, thrown)
        : thrown;
    } finally {
      session.stop();
    }
  }

  /** Runs a function over one snapshot: the newest committed state, or that at a timestamp. */
  async snapshot<T>(
    run: (reader: Reader) => Promise<T>,
    options: Options & { readonly timestamp?: bigint } = {},
  ): Promise<T> {
    const deadline = new Deadline(options);
    for (;;) {
      try {
        const timestamp = options.timestamp ?? 0n;
        const session = await this.begin({ readOnly: true, timestamp, leaseMs }, deadline);
        try {
          return await run(new SnapshotReader(session.calls));
        } finally {
          session.stop();
          session.end();
        }
      } catch (thrown) {
        if (!(thrown instanceof PercolatorError) || !thrown.temporary) {
          throw thrown;
        }
        this.endpoints.leave(this.endpoints.address);
        await deadline.pause(thrown);
      }
    }
  }

  /**
   * Writes cells in one transaction and one message, if the conditions hold. It throws a
   * ConditionError if one does not.
   */
  async apply(
    writes: readonly Write[],
    options: TransactOptions & { readonly conditions?: readonly Condition[] } = {},
  ): Promise<{ commitTimestamp: bigint }> {
    const once = options.exactlyOnce ?? true;
    const request = {
      writes: writes.flatMap((w) =>
        "encoded" in w ? [wireWrite(w.column.table, w.row, w.column.name, w.encoded)] : [],
      ),
      deletes: writes.flatMap((w) =>
        "encoded" in w ? [] : [wireKey(w.column.table, w.row, w.column.name)],
      ),
      conditions: (options.conditions ?? []).map(wireCondition),
      idempotencyKey: once ? crypto.randomUUID() : "",
      name: options.name ?? "",
    };
    const repeatable = (failure: PercolatorError): boolean => once || !failure.maybeCommitted;
    const answer = await this.endpoints.repeat(
      Gateway,
      options,
      (gateway, call) => gateway.transact(request, call),
      repeatable,
    );
    if (!answer.committed) {
      throw new ConditionError(answer.failedConditions);
    }
    return { commitTimestamp: answer.commitTimestamp };
  }

  /** Reads a cell in the newest committed state; undefined: it does not exist. */
  async get<T>(column: Column<T>, row: Row, options: Options = {}): Promise<T | undefined> {
    const request = { keys: [wireKey(column.table, row, column.name)] };
    const answer = await this.endpoints.repeat(Gateway, options, (gateway, call) =>
      gateway.read(request, call),
    );
    const cell = answer.cells[0];
    return cell?.found ? cellOf(cell, column).value : undefined;
  }

  /** Waits until all effects of a commit, by observers and what they trigger, are readable. */
  async waitFor(timestamp: bigint, options: Options = {}): Promise<void> {
    await this.endpoints.repeat(Gateway, options, (gateway, call) =>
      gateway.waitFor({ timestamp }, call),
    );
  }

  /** Creates a table, or adds missing split keys to an existing one. */
  async createTable(
    name: string,
    options: Options & { readonly splitKeys?: readonly string[] } = {},
  ): Promise<void> {
    const request = { table: { name, splitKeys: [...(options.splitKeys ?? [])] } };
    await this.endpoints.repeat(Control, options, (control, call) =>
      control.createTable(request, call),
    );
  }

  /** Yields the committed changes of ranges, at least once, each row's in commit order. */
  changes(options: ChangesOptions): Changes {
    return changes(this.endpoints, options);
  }

  /**
   * Runs observers in this process until the worker is closed, with a stream from each gateway that connect was
   * given: name all of them, since a node sends the changes of its own tablets soonest.
   */
  observe(observers: readonly Observer[], options: WorkOptions = {}): Worker {
    return work(this.endpoints, observers, options);
  }

  /** Begins a session and renews its lease until `stop`. */
  private async begin(
    request: MessageInitShape<typeof BeginRequestSchema>,
    deadline: Deadline,
  ): Promise<Session> {
    const asked = this.endpoints.address;
    let begun: BeginResponse;
    try {
      begun = await this.endpoints.service(Gateway, asked).begin(request, deadline.attempt());
    } catch (thrown) {
      throw this.endpoints.note(asked, thrown);
    }
    const address = begun.address === "" ? asked : begun.address;
    const gateway = this.endpoints.service(Gateway, address);
    const { session } = begun;
    const calls = {
      gateway,
      snapshot: { case: "session" as const, value: session },
      attempt: () => deadline.attempt(),
    };
    // A failure shows in the call that finds the session ended.
    const renew = (): void => void gateway.keepAlive({ session }).catch(() => undefined);
    const timer = session === "" ? undefined : setInterval(renew, begun.leaseMs / 3);
    return {
      begun,
      address,
      calls,
      stop: () => clearInterval(timer),
      end: () => void gateway.rollback({ session }, { timeoutMs: leaseMs }).catch(() => undefined),
    };
  }
}

interface Attempts<T> {
  readonly name: string;
  readonly idempotencyKey: string;
  /** The result of the last run that has returned. */
  ran?: { readonly value: T };
  /** The commit was sent. */
  committing: boolean;
}

interface Session {
  readonly begun: BeginResponse;
  readonly address: string;
  readonly calls: Calls;
  /** Ends the renewal of the lease. */
  stop(): void;
  /** Ends the session on its node, in the background: its lease ends it otherwise. */
  end(): void;
}

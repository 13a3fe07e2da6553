import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";

import type { Column } from "./codec.js";
import type { Client as ServiceClient } from "@connectrpc/connect";
import { toPercolatorError } from "./errors.js";
import type { ScanRequest, WriteRequestSchema } from "./gen/gateway/v1/gateway_pb.js";
import { Gateway } from "./gen/gateway/v1/gateway_pb.js";
import type { Cell, Range, Row } from "./wire.js";
import { cellOf, untyped, wireKey, wireRange, wireWrite } from "./wire.js";


/** ScanOptions select what a scan yields. */
export interface ScanOptions {
  /** Rows; default: no limit. */
  readonly limit?: number;
  readonly reverse?: boolean;
}

/** Reader reads one snapshot. */
export interface Reader {
  /** Reads a cell; undefined: it does not exist. */
  get<T>(column: Column<T>, row: Row): Promise<T | undefined>;
  /** Reads one column of many rows in one message. The cells that exist come in the order of rows. */
  getMany<T>(column: Column<T>, rows: readonly Row[]): Promise<Cell<T>[]>;
  /** Yields a column's cells, by row. */
  scan<T>(column: Column<T>, range?: Omit<Range, "table" | "columns">, options?: ScanOptions): AsyncIterable<Cell<T>>;
  /** Yields the cells of several columns, by row, then by column. */
  scanRows(range: Range, options?: ScanOptions): AsyncIterable<Cell>;
}

type ReadSnapshot = NonNullable<MessageInitShape<typeof Gateway.method.read.input>["snapshot"]>;

/** Calls are a node's methods for one snapshot. */
export interface Calls {
  readonly gateway: ServiceClient<typeof Gateway>;
  readonly snapshot: ReadSnapshot;
  attempt(): CallOptions;
}

const pageCells = 1_000;

/** SnapshotReader is a Reader over the gateway. */
export class SnapshotReader implements Reader {
  constructor(protected readonly calls: Calls) {}

  async get<T>(column: Column<T>, row: Row): Promise<T | undefined> {
    return (await this.getMany(column, [row]))[0]?.value;
  }

  async getMany<T>(column: Column<T>, rows: readonly Row[]): Promise<Cell<T>[]> {
    await this.beforeRead();
    try {
      const answer = await this.calls.gateway.read(
        {
          keys: rows.map((row) => wireKey(column.table, row, column.name)),
          snapshot: this.calls.snapshot,
        },
        this.calls.attempt(),
      );
      return answer.cells.filter((cell) => cell.found).map((cell) => cellOf(cell, column));
    } catch (thrown) {
      throw toPercolatorError(thrown);
    }
  }

  async *scan<T>(
    column: Column<T>,
    range: Omit<Range, "table" | "columns"> = {},
    options: ScanOptions = {},
  ): AsyncIterable<Cell<T>> {
    yield* this.pages({ ...range, table: column.table, columns: [column.name] }, options, column);
  }

  async *scanRows(range: Range, options: ScanOptions = {}): AsyncIterable<Cell> {
    yield* this.pages(range, options, untyped);
  }

  // pages reads page by page, so that a slow consumer holds neither a stream nor memory.
  private async *pages<T>(
    range: Range,
    options: ScanOptions,
    column: Pick<Column<T>, "codec">,
  ): AsyncIterable<Cell<T>> {
    await this.beforeRead();
    const snapshot = this.calls.snapshot as NonNullable<ScanRequest["snapshot"]>;
    for (let pageToken = ""; ; ) {
      let page;
      try {
        page = await this.calls.gateway.scanPage(
          {
            range: wireRange(range),
            limit: options.limit ?? 0,
            reverse: options.reverse ?? false,
            snapshot,
            pageToken,
            pageCells,
          },
          this.calls.attempt(),
        );
      } catch (thrown) {
        throw toPercolatorError(thrown);
      }
      for (const cell of page.cells) {
        yield cellOf(cell, column);
      }
      if (page.pageToken === "") {
        return;
      }
      pageToken = page.pageToken;
    }
  }

  /** Runs before each read. */
  protected async beforeRead(): Promise<void> {}
}

/** A call of the function passed to `transact`. It must not be used after the function has returned. */
export class Transaction extends SnapshotReader {
  private readonly writes = new Map<string, MessageInitShape<typeof WriteRequestSchema>>();
  private buffered = 0;
  private written = false;

  constructor(
    calls: Calls,
    private readonly session: string,
    /** The timestamp of the snapshot that the transaction reads. */
    readonly startTimestamp: bigint,
  ) {
    super(calls);
  }

  /** Writes a cell at the commit. */
  set<T>(column: Column<T>, row: Row, value: T): void {
    const write = wireWrite(column.table, row, column.name, column.codec.encode(value));
    this.buffer(column, row, { writes: [write] });
  }

  /** Deletes a cell at the commit. */
  delete(column: Column<unknown> | Column<never>, row: Row): void {
    this.buffer(column, row, { deletes: [wireKey(column.table, row, column.name)] });
  }

  /** Lets the observers of a weak column run once the transaction has committed. */
  notify(column: Column<unknown> | Column<never>, row: Row): void {
    this.buffer(column, row, { notifications: [wireKey(column.table, row, column.name)] });
  }

  /** Conflicts with transactions that write or lock the cell, as if this one wrote it. */
  lock(column: Column<unknown> | Column<never>, row: Row): void {
    this.buffer(column, row, { locks: [wireKey(column.table, row, column.name)] }, "lock");
  }

  /** Fails the commit if the cell, which this transaction has read, has changed since. */
  validate(column: Column<unknown> | Column<never>, row: Row): void {
    this.buffer(column, row, { validates: [wireKey(column.table, row, column.name)] }, "validate");
  }

  /** Sends the buffered writes. It returns whether the transaction has any. */
  async flush(): Promise<boolean> {
    if (this.buffered > 0) {
      this.written = true;
      try {
        await this.calls.gateway.write({ session: this.session, ...this.take() }, this.calls.attempt());
      } catch (thrown) {
        throw toPercolatorError(thrown);
      }
    }
    return this.written;
  }

  /** Returns the buffered writes, which are then no longer buffered. */
  take(): Omit<MessageInitShape<typeof WriteRequestSchema>, "session" | "$typeName"> {
    const parts = [...this.writes.values()];
    this.writes.clear();
    this.buffered = 0;
    return {
      writes: parts.flatMap((p) => p.writes ?? []),
      deletes: parts.flatMap((p) => p.deletes ?? []),
      notifications: parts.flatMap((p) => p.notifications ?? []),
      locks: parts.flatMap((p) => p.locks ?? []),
      validates: parts.flatMap((p) => p.validates ?? []),
    };
  }

  protected override async beforeRead(): Promise<void> {
    await this.flush();
  }

  // buffer keeps the last write of each cell, and one of each kind of lock.
  private buffer(
    column: Column<unknown> | Column<never>,
    row: Row,
    part: MessageInitShape<typeof WriteRequestSchema>,
    kind = "write",
  ): void {
    const rowKey = typeof row === "string" ? row : [...row].join();
    this.writes.set(JSON.stringify([kind, typeof row, column.table, column.name, rowKey]), part);
    this.buffered++;
  }
}

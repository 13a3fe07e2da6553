import { Code, ConnectError } from "@connectrpc/connect";

import { Deadline } from "./endpoints.js";
import type { Endpoints } from "./endpoints.js";
import type { WatchResponse } from "./gen/gateway/v1/gateway_pb.js";
import { Changes as ChangesService } from "./gen/gateway/v1/gateway_pb.js";
import type { Range, Row } from "./wire.js";
import { columnOf, rowOf, valueOf, wireRange } from "./wire.js";

/** ChangesOptions select the changes and where they begin. */
export interface ChangesOptions {
  readonly ranges: readonly Range[];
  /** A resolved timestamp: changes with greater commit timestamps follow. Default: the present. */
  readonly after?: bigint;
  /** Yields the present state first, as changes with `initial` set. Ignored with `after`. */
  readonly initial?: boolean;
  /** Names a position that the cluster keeps, with the history after it. At most 64 bytes. */
  readonly subscriber?: string;
  /** Ends the iteration. */
  readonly signal?: AbortSignal;
  /** How long to try to reach a gateway before the iteration fails. Defaults to 30,000. */
  readonly timeoutMs?: number;
}

/** Change is a committed write of a cell. */
export interface Change {
  readonly table: string;
  readonly row: Row;
  readonly column: Row;
  /** undefined: the cell was deleted. */
  readonly value: Uint8Array | undefined;
  /** It is of the initial state. */
  readonly initial: boolean;
  readonly commitTimestamp: bigint;
}

/** Batch is a part of the feed. */
export interface Batch {
  readonly changes: readonly Change[];
  /** Every change at or below it has been yielded. Undefined: unchanged since the last batch. */
  readonly resolved: bigint | undefined;
}

/**
 * Changes is an iteration of the feed. After a failure it continues from the last resolved timestamp, so
 * that a change can be yielded again. A slow consumer slows its own feed down alone.
 */
export interface Changes extends AsyncIterable<Batch> {
  /** Moves the subscriber's position: changes up to the timestamp are processed. */
  advance(timestamp: bigint): Promise<void>;
}

/** Returns the feed of a cluster's changes. */
export function changes(endpoints: Endpoints, options: ChangesOptions): Changes {
  return {
    [Symbol.asyncIterator]: () => batches(endpoints, options),
    advance: async (timestamp) => {
      const request = { subscriber: options.subscriber ?? "", timestamp };
      await endpoints.repeat(ChangesService, options, (service, call) =>
        service.advanceSubscriber(request, call),
      );
    },
  };
}

async function* batches(
  endpoints: Endpoints,
  options: ChangesOptions,
): AsyncGenerator<Batch, void, undefined> {
  let after = options.after ?? 0n;
  let deadline = new Deadline(options);
  for (;;) {
    const address = endpoints.address;
    try {
      const request = {
        ranges: options.ranges.map(wireRange),
        after,
        initial: options.initial ?? false,
        subscriber: options.subscriber ?? "",
      };
      const call = options.signal ? { signal: options.signal, timeoutMs: 0 } : { timeoutMs: 0 };
      for await (const answer of endpoints.service(ChangesService, address).watch(request, call)) {
        yield batch(answer);
        after = answer.resolvedTimestamp || after;
        deadline = new Deadline(options);
      }
      throw new ConnectError("the node has ended the stream", Code.Unavailable);
    } catch (thrown) {
      if (options.signal?.aborted) {
        return;
      }
      const failure = endpoints.note(address, thrown);
      if (!failure.temporary) {
        throw failure;
      }
      await deadline.pause(failure);
    }
  }
}

function batch(answer: WatchResponse): Batch {
  return {
    changes: answer.changes.map((change) => ({
      table: change.table,
      row: rowOf(change),
      column: columnOf(change),
      value: change.deleted ? undefined : (valueOf(change) ?? new Uint8Array()),
      initial: change.initial,
      commitTimestamp: change.commitTimestamp,
    })),
    resolved: answer.resolvedTimestamp === 0n ? undefined : answer.resolvedTimestamp,
  };
}

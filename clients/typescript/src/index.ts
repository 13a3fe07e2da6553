// Client of Percolator over the gateway of its nodes. Import "percolator-client/node" or
// "percolator-client/web", which add connect.

export type { Batch, Change, Changes, ChangesOptions } from "./changes.js";
export type { Result, TransactOptions, Write } from "./client.js";
export { Client, equals, exists, remove, set } from "./client.js";
export type { Codec, Column } from "./codec.js";
export { bytes, column, integer, json, text } from "./codec.js";
export type { Options } from "./endpoints.js";
export { ConditionError, PercolatorError, Reason } from "./errors.js";
export type { Reader, ScanOptions, Transaction } from "./transaction.js";
export type { Cell, Condition, Range, Row } from "./wire.js";
export type { Observed, Observer, ObserverOptions, Worker, WorkOptions } from "./work.js";
export { batchObserver, NotReady, observer, PartialFailure, RetryAfter } from "./work.js";

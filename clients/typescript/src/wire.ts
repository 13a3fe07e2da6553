// Conversions between the client's types and the gateway's messages.

import type { MessageInitShape } from "@bufbuild/protobuf";

import type { Column } from "./codec.js";
import { bytes } from "./codec.js";
import type { Cell as WireCell, Change as WireChange } from "./gen/gateway/v1/gateway_pb.js";
import type {
  CellWriteSchema,
  ConditionSchema,
  KeySchema,
  RowRangeSchema,
} from "./gen/gateway/v1/gateway_pb.js";

/** A row. Rows that are not valid UTF-8 are bytes. */
export type Row = string | Uint8Array;

/** Cell is a version of a cell. */
export interface Cell<T = Uint8Array> {
  readonly table: string;
  readonly row: Row;
  readonly column: Row;
  readonly value: T;
  /** 0: the reading transaction has written it. */
  readonly commitTimestamp: bigint;
}

/** Range is a range of rows of one table. `prefix`, `from` and `before` may be combined. */
export interface Range {
  readonly table: string;
  /** Rows at or after it. */
  readonly from?: Row;
  /** Rows before it. */
  readonly before?: Row;
  /** Rows that begin with it. */
  readonly prefix?: Row;
  /** Default: all columns. */
  readonly columns?: readonly string[];
}

/** Condition is what a cell must be for an apply to commit. */
export interface Condition {
  readonly column: Column<never> | Column<unknown>;
  readonly row: Row;
  readonly is: MessageInitShape<typeof ConditionSchema>["holds"];
}

type Init<Case extends string, BytesCase extends string> =
  | { case: Case; value: string }
  | { case: BytesCase; value: Uint8Array };

// either sets the field of the text or that of the bytes.
function either<C extends string, B extends string>(value: Row, asText: C, asBytes: B): Init<C, B> {
  return typeof value === "string"
    ? { case: asText, value }
    : { case: asBytes, value };
}

/** Returns the fields of a row in messages whose only address it is. */
export function rowFields(row: Row): Init<"row", "rowBytes"> {
  return either(row, "row", "rowBytes");
}

function optional<C extends string, B extends string>(
  value: Row | undefined,
  asText: C,
  asBytes: B,
): Init<C, B> | { case: undefined } {
  return value === undefined ? { case: undefined } : either(value, asText, asBytes);
}

export function wireKey(
  table: string,
  row: Row,
  column: Row,
): MessageInitShape<typeof KeySchema> {
  return {
    table,
    rowAs: either(row, "row", "rowBytes"),
    columnAs: either(column, "column", "columnBytes"),
  };
}

export function wireWrite(
  table: string,
  row: Row,
  column: Row,
  value: Uint8Array,
): MessageInitShape<typeof CellWriteSchema> {
  return {
    table,
    rowAs: either(row, "row", "rowBytes"),
    columnAs: either(column, "column", "columnBytes"),
    valueAs: { case: "valueBytes", value },
  };
}

export function wireCondition(c: Condition): MessageInitShape<typeof ConditionSchema> {
  return {
    table: c.column.table,
    rowAs: either(c.row, "row", "rowBytes"),
    columnAs: { case: "column", value: c.column.name },
    holds: c.is ?? { case: undefined },
  };
}

export function wireRange(range: Range): MessageInitShape<typeof RowRangeSchema> {
  return {
    table: range.table,
    fromAs: optional(range.from, "from", "fromBytes"),
    beforeAs: optional(range.before, "before", "beforeBytes"),
    prefixAs: optional(range.prefix, "prefix", "prefixBytes"),
    columns: [...(range.columns ?? [])],
  };
}

const encoder = new TextEncoder();

/** Returns the value's bytes; undefined: there is none. */
export function valueOf(cell: WireCell | WireChange): Uint8Array | undefined {
  switch (cell.valueAs.case) {
    case "value":
      return encoder.encode(cell.valueAs.value);
    case "valueBytes":
      return cell.valueAs.value;
    default:
      return undefined;
  }
}

export function rowOf(cell: WireCell | WireChange): Row {
  return cell.rowAs.value ?? "";
}

export function columnOf(cell: WireCell | WireChange): Row {
  return cell.columnAs.value ?? "";
}

/** Converts a cell that exists. */
export function cellOf<T>(cell: WireCell, column: Pick<Column<T>, "codec">): Cell<T> {
  return {
    table: cell.table,
    row: rowOf(cell),
    column: columnOf(cell),
    value: column.codec.decode(valueOf(cell) ?? new Uint8Array()),
    commitTimestamp: cell.commitTimestamp,
  };
}

export const untyped = { codec: bytes };

/** Codec converts values of type T to the bytes of a cell and back. */
export interface Codec<T> {
  encode(value: T): Uint8Array;
  /** Throws if the bytes are not of a T. It must not keep data. */
  decode(data: Uint8Array): T;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Stores bytes unchanged, as Go's `percolator.Bytes`. */
export const bytes: Codec<Uint8Array> = {
  encode: (value) => value,
  decode: (data) => data.slice(),
};

/** Stores a string as UTF-8, as Go's `percolator.Text`. */
export const text: Codec<string> = {
  encode: (value) => encoder.encode(value),
  decode: (data) => decoder.decode(data),
};

/** Stores an integer in decimal digits, as Go's `percolator.Integer`. */
export const integer: Codec<bigint> = {
  encode: (value) => encoder.encode(value.toString()),
  decode: (data) => {
    const digits = decoder.decode(data);
    if (!/^-?[0-9]+$/.test(digits)) {
      throw new SyntaxError(`${JSON.stringify(digits)} is not an integer`);
    }
    return BigInt(digits);
  },
};

/** Stores a value as JSON, as Go's `percolator.JSON`. */
export function json<T>(): Codec<T> {
  return {
    encode: (value) => {
      const encoded: string | undefined = JSON.stringify(value);
      if (encoded === undefined) {
        throw new TypeError("the value has no JSON");
      }
      return encoder.encode(encoded);
    },
    decode: (data) => JSON.parse(decoder.decode(data)) as T,
  };
}

/** Column is a column of a table whose values have type T. */
export interface Column<T> {
  readonly table: string;
  readonly name: string;
  readonly codec: Codec<T>;
}

/** Returns a column. Without a codec its values are stored as JSON. */
export function column<T>(table: string, name: string, codec: Codec<T> = json<T>()): Column<T> {
  return { table, name, codec };
}

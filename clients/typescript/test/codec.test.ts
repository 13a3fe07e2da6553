import assert from "node:assert/strict";
import { test } from "node:test";

import { bytes, integer, json, text } from "../src/index.js";

test("codecs round-trip", () => {
  assert.equal(integer.decode(integer.encode(-(2n ** 63n))), -(2n ** 63n));
  assert.equal(text.decode(text.encode("zwölf")), "zwölf");
  assert.deepEqual(json().decode(json().encode({ a: [1, null] })), { a: [1, null] });
  const data = Uint8Array.of(0, 255);
  const decoded = bytes.decode(data);
  data[0] = 1;
  assert.deepEqual(decoded, Uint8Array.of(0, 255));
});

test("codecs refuse bytes of other types", () => {
  assert.throws(() => integer.decode(text.encode("1e3")), SyntaxError);
  assert.throws(() => integer.decode(text.encode("")), SyntaxError);
  assert.throws(() => text.decode(Uint8Array.of(255)), TypeError);
  assert.throws(() => json().decode(text.encode("{")), SyntaxError);
  assert.throws(() => json().encode(undefined), TypeError);
});

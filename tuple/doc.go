// Package tuple makes rows of several typed elements, whose order as bytes is the order
// of the elements: the rows of (city, year, number) are sorted by city, then year, then
// number, and those of one city are a prefix scan.
//
//	row := tuple.Pack("vienna", 2010, 7)
//	err := tuple.Unpack(row, &city, &year, &number)
//	all := percolator.Rows("reports").Prefix(tuple.Prefix("vienna", 2010))
//
// Elements are strings, byte slices, integers of every size, signed or not, bools,
// float32, float64 and time.Time; and, but for time.Time, whatever has one of those as its
// underlying type, as time.Duration and percolator.Timestamp have.
//
// The order, and the encoding but for zero bytes, is that of FoundationDB's tuple layer:
// byte slices, then strings, integers, float32, float64, false, true, and times.
// Integers are compared by value whatever their types are. Floats are in the order of
// IEEE 754: -NaN, -Inf, …, -0, +0, …, +Inf, NaN. A tuple comes before those that begin
// with it.
//
// Invariants:
//  1. Pack(a...) < Pack(b...) if and only if a is before b.
//  2. A row that begins with Prefix(a...) is that of a tuple that begins with a: no
//     element's encoding is the beginning of another's. ("a" is no prefix of "ab"; that
//     is why the encoding of zero bytes is not FoundationDB's.)
//  3. What Parse accepts, Pack makes of its result again, byte for byte.
//
// It is a pure package: nothing in it knows of tables, and a crash can't concern it.
package tuple

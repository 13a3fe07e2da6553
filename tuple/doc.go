// Package tuple encodes several typed elements as one row whose byte order is the order of
// the elements: rows of (city, year, number) are sorted by city, then year, then number, and
// a prefix scan reads those of one city.
//
//	row := tuple.Pack("vienna", 2010, 7)
//	err := tuple.Unpack(row, &city, &year, &number)
//	all := percolator.Rows("reports").Prefix(tuple.Prefix("vienna", 2010))
//
// An element is a string, a byte slice, an integer of any size, a bool, a float32, a float64,
// a time.Time, or a value whose underlying type is one of these except time.Time, such as
// time.Duration and percolator.Timestamp.
//
// The order is that of FoundationDB's tuple layer, and so is the encoding, except for times and
// for bytes 0 and 1 of texts: byte slices, strings, integers, float32, float64, false, true, times.
// Integers compare by value, regardless of their types. Floats have the total order of
// IEEE 754: -NaN, -Inf, …, -0, +0, …, +Inf, NaN. A tuple sorts before its extensions.
//
// Invariants:
//  1. Pack(a...) < Pack(b...) if and only if a sorts before b.
//  2. A row has the prefix Prefix(a...) if and only if its tuple begins with the elements a:
//     no element's encoding is a prefix of another's. For example, rows of "ab" do not have
//     the prefix Prefix("a"). This is why zero bytes are not encoded as in FoundationDB.
//  3. Pack(Parse(row)...) == row for every row that Parse accepts.
//
// The package is pure: it keeps no state and depends on no other package of this module.
package tuple

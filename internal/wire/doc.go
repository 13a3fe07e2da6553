// Package wire converts between protobuf messages and the terms of the rules
// (internal/mvcc), and holds the messages that nodes write to their own logs and stores
// (percolator_wire.proto). It also has the table of operations on tablets (ops.go): who
// evaluates each, whether it may be repeated, and what clients may do with it.
//
// Messages are immutable once sent, so conversions share memory: a row that is a string
// on one side and bytes on the other is the same memory. Whoever keeps bytes longer than
// the message copies them.
package wire

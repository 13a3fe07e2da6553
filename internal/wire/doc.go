// Package wire converts between protobuf messages and the types of the rules (internal/mvcc),
// and contains the messages that nodes write to their logs and stores (percolator_wire.proto).
// It also has the table of operations on tablets (ops.go): the evaluator of each, whether it
// may be repeated, and clients' access to it.
//
// Messages are immutable once sent, so conversions share memory: a row that is a string on one
// side and bytes on the other is the same memory. Code that keeps bytes longer than the
// message must copy them.
package wire

// Package txntest implements a database in memory for tests of the client: tablets over
// mvcctest.MemView, an oracle and meta, accessed through the txn.Transport of any number of processes,
// with injected faults.
//
// Invariants:
//  1. An operation is evaluated and applied atomically, under one lock, so any anomaly is the client's
//     fault.
//  2. Tablets check range and epoch as real ones do; a split changes only descriptors.
//  3. A fault delays, loses or duplicates an operation, or loses or replaces its answer; it never
//     violates the tablets' rules.
package txntest

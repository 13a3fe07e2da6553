// Package txntest is a repository in memory: tablets over mvcctest.MemView, an oracle and
// meta, reached through the txn.Transport of any number of processes, with faults on
// request. Tests of the client run against it.
//
// Invariants:
//  1. An operation is evaluated and applied at one moment, under one lock: what is wrong
//     afterwards is the client's doing.
//  2. Tablets check range and epoch as real ones do; a split changes descriptors only.
//  3. A fault changes what the client is told, or when, or has an operation arrive twice; it
//     never breaks the rules inside.
package txntest

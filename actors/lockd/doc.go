// Package lockd implements the lightweight lock service of §2.4: advisory locks with
// leases, held in memory only. A scanner takes the lock of a dirty cell before it hands
// the cell to an observer, so that two workers rarely do the same work.
//
// Invariants:
//  1. While its lease lasts, by the injected clock, a recorded key has at most one owner. Only
//     the owner can unlock it or extend the lease.
//  2. Correctness does not depend on exclusive ownership: notifications are transactional, and a
//     lost lock can only duplicate work (design section 7).
//  3. The table holds at most MaxEntries keys. When it is full, further locks are granted
//     without being recorded, because duplicate work is better than none.
//  4. Requests that wait in the mailbox are handled as one batch, in order of arrival.
//
// Every node runs one service, for the rows of the tablets that the node leads, so that
// most calls are local. Scanners call it through an interface of their own; package node
// connects them. A crash or a restart of the actor loses all locks: an observer may then
// run twice at once for a row, and one of the two transactions fails with a conflict.
package lockd

// Package memory is a tablet leader's in-memory state of its rows: the locks with the reservations
// of one-phase commits and asynchronous prewrites (the paper's "in-memory columns"), the effects of
// proposals in flight, the notification index, bounds on rollback records and past locks, and the
// catalogue, bound and safepoint that evaluation honours.
//
// A Memory belongs to its tablet's actor: only the tablet's turns may touch it, or an
// EvalView of it. Other goroutines, such as the read workers, get an immutable copy (a
// ReadView) or sole ownership (a Count or a Refill). It writes nothing to the store and proposes
// nothing.
//
// Invariants:
//  1. Locks and index contain what is applied, and reservations, but never what is only
//     proposed. That is in the overlay, from Evaluated until Visible or Lost.
//  2. A lock is removed only after its removal is visible, by its cell and token, or with its
//     rows in a split, or with all locks when the leadership ends; a reservation only by
//     Release.
//  3. A column of the index is loaded before any change of it is in flight.
//
// A crash, or the end of the leadership, loses no lock and no notification: Lead reads the locks
// again, and the index is loaded on demand. It loses the order of the queues and the records of
// changes, origins and ended runs, which then count as unknown.
//
// Caller: actors/tablet.
package memory

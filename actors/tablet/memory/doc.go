// Package memory is what a tablet's leader holds in memory of its rows: the locks with the
// reservations of one-phase commits (the paper's "in-memory columns"), the effects of
// proposals in flight, the notification index, what it knows of rollback records, and the
// catalogue, bound and safepoint that evaluation honours.
//
// A Memory belongs to its tablet's actor: only the tablet's turns may touch it, or an
// EvalView of it. What other goroutines, such as the read workers, get is an immutable copy
// (a ReadView), or handed over (a Count). It writes nothing to the store and proposes nothing.
//
// Invariants:
//  1. Locks and index hold what is applied, and reservations; never what is only proposed.
//     That is in the overlay, from Evaluated until Visible or Lost.
//  2. A lock leaves only after its removal is visible, by its cell and token, or with its
//     rows in a split, or with all when the leadership ends; a reservation only by Release.
//  3. A column of the index is loaded before anything of it is in flight.
//
// A crash, or the end of the leadership, loses nothing: Lead reads all anew from the store.
//
// Called by: actors/tablet.
package memory

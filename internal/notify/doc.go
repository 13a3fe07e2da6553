// Package notify defines the types shared by the finders of dirty cells (actors/scanner) and
// the dispatcher that runs observers for them (actors/observer), so that neither imports the
// other (§2.4). It has types and encodings only: no actor, no clock, no I/O.
//
// Invariants:
//  1. Done is called exactly once for a cell that was Accepted, and never for another.
//  2. An acknowledgment is the start timestamp at which the observer last ran, as eight
//     bytes in big-endian order, followed by the observer's version unless that is 0.
//
// Dirty cells are kept in memory only: a crash loses those that were found but not run, and
// the next scan finds them again.
package notify

// Package notify holds what those who find dirty cells (actors/scanner) and those who run
// observers for them (actors/observer) say to each other, so that neither imports the
// other (§2.4). Types and encodings only: no actor, no clock, no I/O.
//
// Invariants:
//  1. Whoever gets Accepted for a cell hears its Done exactly once; for every other answer never.
//  2. An acknowledgment is the eight bytes, big endian, of the start timestamp at which the observer last ran.
//
// Nothing here outlives the process: a crash loses what was found but not run, and the
// next scan finds it again.
package notify

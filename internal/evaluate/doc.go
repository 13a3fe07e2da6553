// Package evaluate answers operations on a tablet from what the tablet holds: it is the
// step from a request to the rules (internal/mvcc) and back, the same for tablets and for
// the repositories in memory that tests run against. It has no state, clock or goroutine.
//
// Read answers an operation that is ByReader in wire's table, Rule one that is ByRules. All
// others concern more than what a tablet holds: its replicas, its range, its oracle.
//
// Called by: actors/tablet, read workers (Read) and tablet actors (Rule); txntest.
package evaluate

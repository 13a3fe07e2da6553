// Package evaluate evaluates operations on a tablet's state: it converts a request, applies
// the rules (internal/mvcc) and converts the result, for tablets and for the in-memory
// repositories of tests alike. It has no state, clock or goroutine.
//
// Read evaluates operations that are ByReader in wire's table, Rule those that are ByRules.
// All others involve more than a tablet's state: its replicas, its range, its oracle.
//
// Called by: actors/tablet, read workers (Read) and tablet actors (Rule); txntest.
package evaluate

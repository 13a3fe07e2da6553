// Package salvage recovers a cluster that has permanently lost nodes with a quorum of some tablets
// (docs/adr/0055). It works on the stores of stopped nodes: Inspect reads one store, Make chooses
// from all inspections the replica of each tablet that survives, and Apply makes it the tablet's only
// replica, one store after the other.
//
// Invariants:
//
//  1. A tablet gets a new group only if its voters, by the most advanced remaining log, have no
//     majority on the surviving nodes, and every other node with a vote in any tablet is declared
//     dead. Any other tablet is left unchanged.
//  2. Of the remaining replicas of a tablet the one with the highest (term, index) at the end of its
//     log survives, with its whole log: every committed entry that is on any remaining replica is in
//     it. The others are removed. The log is cut before an entry of a merge that cannot be committed
//     or applied (merges.go).
//  3. The tablets of a plan cover every row exactly once. Rows of which no replica remains are a gap,
//     and a plan has an empty tablet for them only with Options.AcceptGaps.
//  4. The new group of a tablet has a replica id and an epoch above all that a lost majority can have
//     assigned.
//  5. No timestamp that any survivor contains is issued again.
//  6. A plan is applied only to the stores that it was made from, in the state in which
//     they were inspected.
//
// # What a crash does
//
// Apply first durably records that it has begun; from then on the node does not start. Each step is
// idempotent, so repeating the same Apply completes it. The last step records completion.
//
// Called by: internal/cli.
package salvage

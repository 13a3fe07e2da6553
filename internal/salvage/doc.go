// Package salvage recovers a cluster that has permanently lost the nodes with a quorum of some
// tablets (docs/adr/0055). It works on the stores of stopped nodes: Inspect reads one store,
// Make decides from all inspections which replica of each tablet goes on, and Apply makes that
// replica the only one of its tablet, one store after the other.
//
// Invariants:
//
//  1. A tablet is recreated only if its voters, by the best log that is left, have no
//     majority on the surviving nodes, and every other node that has a vote in any tablet is
//     declared dead. Any other tablet is left as it is.
//  2. Of the surviving replicas of a tablet the one with the highest (term, index) at the end
//     of its log goes on, with all of that log: whatever was committed and is on any
//     survivor is in it. The others are removed. Its log is cut before an entry of a merge that
//     cannot be committed or applied (merges.go).
//  3. The tablets of a plan cover all rows once. Rows that no survivor holds are a gap, and a
//     plan has an empty tablet for them only if the caller accepts that.
//  4. The new group of a tablet has a replica id and an epoch above all that a lost
//     majority can have given out.
//  5. No timestamp that any survivor has seen is given out again.
//  6. A plan is applied only to the stores that it was made from, in the state in which
//     they were inspected.
//
// # What a crash does
//
// Apply first records durably that it has begun; from then on the node does not start. Each step
// is idempotent, so the same Apply again completes it. The last step records that it is done.
//
// Called by: internal/cli.
package salvage

// Package scanner finds dirty cells and hands them to the dispatcher of observers (§2.4).
// A node has
//
//   - one hinter: tablet leaders tell it which cells have just become dirty, and it passes them on at once. This is what
//     makes notifications take milliseconds instead of the paper's seconds. Hints are bounded and may be dropped;
//   - N scanners: each picks a random tablet, hands out what its leader says has waited longest, and goes on to the next
//     ones. They work off what the hints leave, are the safety net for lost ones, and the way idle nodes take work from
//     busy ones. While they have more than runs take there is a backlog, and hints are dropped (ADR 0027);
//   - one sweeper: it walks the lock and intent groups of the tablets that the node leads and has what is left over
//     resolved, so that a crash after a primary's commit cannot leave an observed secondary asleep. It looks after every
//     column that the tablets' catalogue says is observed, also where this process runs none of the observers.
//
// Invariants:
//  1. Every dirty cell whose observer is registered here is found again and again until it is cleared or parked: a walk
//     that starts at a random key of a tablet goes around it, and walks that their budget ends start elsewhere next time.
//  2. Nothing here decides whether an observer runs: the dispatcher's transaction does. Whatever is found twice, lost, or
//     handed on without an advisory lock costs work, never correctness.
//  3. Scanners do not clump like buses: one that meets a row that another worker has locked jumps to a new random place, a
//     bounded number of times, or, where it walks in order of waiting, passes over it.
//  4. Never a hot loop: a turn that finds nothing doubles the pause before the next, up to PaceMax; one that finds
//     something pauses shortly. Requests of a turn, cells in flight per scanner and column, and waiting hints are bounded.
//  5. An observer that is slow or stuck keeps no scanner from the others' cells: a scanner that has Window of its cells in
//     flight waits for it a moment only. Cells of a paused observer are neither hinted nor walked.
//  6. A survey saves walks and hides nothing for good: what the leaders of tablets say is clean is walked all the same, in turn,
//     about once a minute, or as often as the bound on such walks allows; what nobody says so of is walked as without a survey.
//  7. Where the leader knows the order, a change is overtaken by no more younger ones than are in hand: by windows, the
//     dispatchers' queues, and hints taken before the backlog was seen.
//
// A tablet whose leader does not know the order is walked from a random key around; so
// is, at times, one whose queue is through, for what the order may lack. Choice of that
// key (fairness): the first page of the tablet's dirty cells is read; if it is all there
// is, its entries are taken in order from a random one on, and all have the same chance
// to be first. If there are more, the walk begins where the last one in this tablet and
// column was cut short (every second time, so that nothing stays out of reach however
// much is dirty), or else, three times in four, at a row drawn from a small uniform
// sample of the dirty rows that the scanner has met there (reservoir sampling, so the
// choice follows the distribution of the rows), or else at a random byte string inside
// the tablet's range.
//
// Scanners and the sweeper are actors that block in their turns: nothing is sent to them
// but their own next turn. They call tablets, lockd and the dispatcher through the
// interfaces declared here; package node connects them. A crash loses nothing: what was
// found is still in the notify group, and advisory locks end by their lease.
package scanner

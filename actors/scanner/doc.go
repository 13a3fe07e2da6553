// Package scanner finds dirty cells and hands them to the dispatcher of observers (§2.4).
// A node has
//
//   - one hinter. Tablet leaders send it the cells that have just become dirty, and it passes
//     them on at once, so that notifications take milliseconds instead of the paper's
//     seconds. Hints are bounded and may be dropped;
//   - N scanners. Each picks a random tablet, submits the cells that have waited longest
//     according to its leader, and continues with the next tablets. Scanners process what
//     hints leave, make up for lost hints, and let idle nodes relieve busy ones. While runs
//     cannot keep up, there is a backlog and hints are dropped (docs/adr/0027);
//   - one sweeper. It walks the lock and intent groups of the tablets that the node leads
//     and has old entries resolved, so that a crash after a primary's commit cannot leave
//     an observed secondary locked. It covers every column that is observed according to the
//     tablets' catalogue, even if this process does not run the observer.
//
// Invariants:
//  1. Every dirty cell whose observer is registered here is found repeatedly until it is
//     cleared or parked: a walk that starts at a random key of a tablet wraps around the whole
//     tablet, and a walk that exhausts its budget starts elsewhere next time.
//  2. Nothing here decides whether an observer runs; the dispatcher's transaction does.
//     Cells that are found twice, lost, or handed on without an advisory lock cost work,
//     never correctness.
//  3. Scanners do not clump like buses. One that finds a row locked by another worker
//     jumps to a new random place, a bounded number of times, or, if it walks in the order
//     of waiting, skips the row.
//  4. There is no hot loop: a turn that finds nothing doubles the pause before the next, up
//     to PaceMax; one that finds something pauses briefly. The requests of a turn, the
//     cells in flight per scanner and column, and the waiting hints are bounded.
//  5. A slow or stuck observer does not keep a scanner from other observers' cells: a
//     scanner with Window of its cells in flight waits only a moment for it. Cells of a
//     paused observer are neither hinted nor walked.
//  6. A survey saves walks and hides nothing for good. Tablets reported clean
//     by their leaders are still walked in turn, about once a minute, or as often as the limit
//     of such walks allows. Tablets missing in the survey are walked as without one.
//  7. If the leader knows the order, a change is overtaken by a bounded number of younger
//     ones: those in windows, in the dispatchers' queues, and in hints from before the
//     backlog was noticed.
//
// A tablet whose leader does not know the order is walked from a random key around, as is
// sometimes a tablet whose queue is finished, for cells missing in the order. The key is
// chosen for fairness. The first page of the tablet's dirty cells is read. If that is all,
// its entries are taken in order from a random one on, so that each has the same chance to
// be first. Otherwise the walk begins, one time in two, where the last walk of this tablet
// and column ended early, so that every cell is reached however many are dirty. Otherwise it
// begins, three times in four, at a row drawn from a small uniform sample of the dirty
// rows that the scanner has found there (reservoir sampling, so that the choice follows the
// distribution of the rows), and otherwise at a random byte string inside the tablet's
// range.
//
// Scanners and the sweeper are actors that block in their turns; they receive no messages
// other than those that start a turn. They call tablets, lockd and the dispatcher through the
// interfaces declared here; package node connects them. A crash loses nothing: the cells
// found are still in the notify group, and advisory locks end with their leases.
package scanner

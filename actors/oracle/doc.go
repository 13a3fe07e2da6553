// Package oracle holds the timestamp oracle (the paper's section 2.3): an actor that
// hands out strictly increasing timestamps from memory, below a high-water mark that the
// meta tablet persists.
//
// Invariants (design section 6):
//  1. A timestamp is given out once, and only if it is at most the persisted mark.
//  2. Memory belongs to the term of the meta tablet in which its mark was read; another term drops it, and the next
//     timestamp is above the mark.
//  3. Leadership is confirmed once per batch, by a ReadIndex that began after the batch was closed, before it is answered. A
//     confirmation serves the batch that it was asked for and no other, whatever panics or restarts come between. The only
//     voter of the meta tablet is its own ReadIndex: it is looked at, by the actor, or by Now under the memory's lock.
//  4. Time never goes back: physical time is max(mark, wall clock at take-over) plus monotonic time since.
//  5. Where there are several voters nothing is given out, and no mark raised, in a term before Config.Judge
//     has let this node's clock in; and again when there are more voters than it was compared with. The mark
//     itself says nothing about clocks: it may be ahead because of another's.
//  6. A timestamp is at most maxLead ahead of physical time, whatever is asked for: callers wait for the
//     clock, in the order in which they came, for at most what maxWaiting allows, and then are refused.
//
// A crash loses what is left below the mark: timestamps jump forward to it.
//
// Called by: node, for its own clients, for remote ones, and for the tablets' first reads
// and one-phase commits; these two through Now first, in the tablet's own turn.
package oracle

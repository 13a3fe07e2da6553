// Package oracle holds the timestamp oracle (the paper's section 2.3): an actor that
// hands out strictly increasing timestamps from memory, below a high-water mark that the
// meta tablet persists.
//
// Invariants (design section 6):
//  1. A timestamp is issued at most once, and only if it is at most the persisted mark.
//  2. The memory belongs to the term of the meta tablet in which its mark was read. In
//     another term it is dropped, and the next timestamp is above the mark.
//  3. Before a batch is answered, leadership is confirmed for it: by a lease that holds after the
//     batch was closed, or by a ReadIndex that began after that. A confirmation serves only the
//     batch for which it was requested, whatever panics or restarts happen in between. The only
//     voter of the meta tablet and a leader with a lease need no ReadIndex: Meta.Confirmed is
//     checked instead, by the actor, or by Now under the memory's lock.
//  4. Time never goes back: physical time is max(mark, wall clock at takeover) plus the
//     monotonic time since.
//  5. If there are several voters, no timestamp is issued and no mark raised in a term
//     before Config.Judge has accepted this node's clock; and the clock is judged again
//     when there are more voters than it was compared with. The mark is no evidence about
//     clocks: another node's bad clock may have raised it.
//  6. A timestamp is at most maxLead ahead of physical time. Callers wait for the clock in
//     order of arrival, and are refused when more than maxWaiting timestamps are requested.
//
// A crash loses the timestamps that are left below the mark: the next ones are above it.
//
// Package node calls it for its own clients, for remote ones, and for the tablets' first
// reads and one-phase commits. The latter two try Now first, on the tablet's goroutine.
package oracle

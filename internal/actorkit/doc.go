// Package actorkit is what the actors share: requests with a reply channel, bounded
// admission, and mailbox coalescing (design section 5): the first message of a batch
// makes the actor send itself a marker, and all that was in the mailbox ahead of the
// marker is handled as one batch; and Turns, the actor that works in turns.
//
// Invariants:
//  1. A call is answered at most once; a call that reaches a stopped actor is answered with ErrStopped.
//  2. A port admits at most QueueLimit unanswered calls, those marked Bypass not counted.
//  3. No batch waits for a timer unless Linger is set.
//  4. The turns of Turns never overlap, and a wake is followed by a turn that begins after it.
//
// Actor futures are not used: they cost a process registration each and race with late replies.
package actorkit

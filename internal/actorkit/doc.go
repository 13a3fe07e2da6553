// Package actorkit has what the actors share: calls with replies and bounded admission
// (Call, Port), the coalescing of a mailbox into batches (Batcher; design section 5), the
// goroutines that actors run on (Dispatcher), and the actor that works in turns (Turns).
//
// Invariants:
//  1. A call is answered at most once. A call that reaches a stopped actor fails with
//     ErrStopped.
//  2. A port admits at most QueueLimit unanswered calls, besides those marked Bypass.
//  3. No batch waits for a timer unless Linger is set.
//  4. The turns of Turns never overlap, and each Wake is followed by a turn that begins
//     after it.
//  5. A panic does not end an actor of NewSystem; the message is lost.
//
// Protoactor's futures are not used: each costs a process registration, and they race with
// late replies.
package actorkit

// Package lockd is the lightweight lock service of §2.4: advisory locks with a lease, in
// memory only, granted to scanners before they hand a dirty row to an observer, so that
// two workers seldom do the same work.
//
// Invariants:
//  1. At one time a key has at most one owner, as long as its lease lasts by the injected clock. Only its owner gives it
//     back or renews it.
//  2. Nothing depends on invariant 1 for correctness: notifications are transactional, and losing locks may duplicate
//     work, never break it (design section 7).
//  3. Memory is bounded: at most MaxEntries keys. When all are taken, further locks are granted without being recorded,
//     because working twice is better than not at all.
//  4. Requests that wait in the mailbox are handled as one batch, in order of arrival.
//
// Scanners call it, through the interface that they declare; package node connects them.
// It lives on every node and serves the rows of the tablets that the node leads, so that
// the common case is local. A crash or a restart of the actor loses all locks: their rows
// may be run twice at once, one of the two transactions then meets a conflict.
package lockd

// Package txn coordinates transactions from the client's side (the paper's sections 2.2,
// 2.3 and 2.5; design section 8). It speaks to tablets, the oracle and meta through a
// Transport, and is the same in a node's process and over the network. Package percolator
// wraps it for users; the observer and scanner actors use it directly.
//
// Invariants (numbers in brackets are those of design section 4):
//  1. Primary first [3]: no secondary is committed or rolled back before the primary's
//     decision is known.
//  2. Proof of order [10]: commit_ts is asked for after every prewrite has been
//     acknowledged; a snapshot's timestamp before anything is read, by the client or, for
//     a first read, by the tablet.
//  3. A transaction never waits while it holds locks: it resolves what is decided or
//     expired, and otherwise gives its locks up and is run again [2].
//  4. A lost reply to a primary's commit or to a one-phase commit is settled by Rollback
//     at the primary, which answers with the commit timestamp or fences for ever, and so is
//     one that is given up after an answer that a later copy of the message may not get. Until
//     then nothing is reported but ErrCommitUnknown, and nothing is run again [8]. A
//     one-phase commit never turns into two phases with the same start_ts.
//  5. Retry runs user code again, never buffered writes; a failed read sticks to its
//     transaction [9].
//  6. A timestamp serves only those who had asked before its request was sent, and only
//     if it is above all that had been seen then.
//  7. The tablet map only ever splits, so of two overlapping descriptors the one with the
//     higher epoch is newer.
//  8. An open snapshot that gets older than a quarter of the history is held by a lease
//     of the process, as long as the cluster lets it [11]. It is advisory: a read that
//     comes too late is refused, never wrong.
//
// A Client is put together from parts, each with state that only it changes: oracle asks
// for timestamps; router has the tablet map, and sends; meta has the tables' names;
// resolver gets locks out of the way and settles commits whose reply was lost; heartbeats
// and leases keep locks and history alive; observers watches notifications; background
// bounds and joins what goes on beside the callers. A part knows only the parts before it.
// A transaction's own steps are methods of reader (reads), Txn (one phase) and twoPhase.
//
// Everything that a Client starts in the background is bounded and joined by Close. A
// crash of the process leaves locks behind; they expire by oracle time and whoever meets
// them decides them by their primary (CheckTxnStatus).
package txn

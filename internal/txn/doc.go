// Package txn coordinates transactions from the client's side (the paper's sections 2.2, 2.3
// and 2.5; design section 8). It sends requests to tablets, the oracle and meta through a
// Transport, in a node's process and over the network alike. Package percolator wraps it for
// users; the observer and scanner actors use it directly.
//
// Invariants (numbers in brackets refer to design section 4):
//  1. Primary first [3]: no secondary is committed or rolled back before the primary's
//     decision is known. An asynchronous commit (async.go) is decided by all of its cells: it is
//     committed once all of them are locked.
//  2. Proof of order [10]: commit_ts is requested after every prewrite has been acknowledged; of
//     an asynchronous commit it is the greatest of the timestamps that the tablets have requested
//     after reserving their cells;
//     a snapshot's timestamp is requested before anything is read, by the client or, for a
//     first read, by the tablet. A transaction without a snapshot, which reads nothing, may
//     start at an older one (spares).
//  3. A transaction never waits for the lock of another while it holds locks: it resolves
//     locks that are decided or expired, and otherwise releases its own and runs again [2].
//  4. If the reply to a primary's commit or to a one-phase commit is lost, a Rollback at the
//     primary settles it: it returns the commit timestamp or refuses the commit forever. The same
//     settles a commit that is abandoned after an answer that a delayed copy of the message may not
//     get. An asynchronous commit that fails is settled by a Rollback at all of its cells, unless
//     one of them has refused it for good. Until then Commit reports only ErrCommitUnknown, and
//     nothing runs again [8]. A one-phase commit never turns into two phases with the same
//     start_ts, and is sent with another start_ts only after a tablet has refused the first one for
//     good.
//  5. A retry runs user code again and never resends buffered writes, unless the transaction
//     has read nothing; after a failed read the transaction cannot commit [9].
//  6. A timestamp is handed only to callers that were waiting when its request was sent, and
//     only if it is above all that had been seen then. A spare one is used once, and not to
//     read.
//  7. Tablets only split and merge, each time at a higher epoch, so of two overlapping
//     descriptors the one with the higher epoch is newer.
//  8. The process holds a lease for an open snapshot older than a quarter of the history, as
//     long as the cluster grants it [11]. The lease is advisory: a read below the history is
//     refused, never wrong.
//
// A Client consists of parts, each with state that only it changes. Package request requests
// timestamps (Oracle), caches the tables' names (Meta), and caches the tablet map and sends
// operations (Router). The resolver resolves conflicting locks and settles commits whose reply was
// lost; heartbeats and package leases keep locks and history alive; package spares keeps unused
// timestamps; package pending waits for notifications and replays them; package background bounds
// and joins background work; a feed follows changes, on goroutines that end with the iteration. A
// part depends only on package background and on the parts before it. A transaction's steps are
// methods of reader (reads), Txn, onePhase and twoPhase.
//
// Everything that a Client starts in the background is bounded, and Close joins it. A crash of
// the process leaves locks behind. They expire by the oracle's time, and transactions that
// encounter them resolve them by their primary (CheckTxnStatus), or, if that has the lock of an
// asynchronous commit, by all of the cells (resolver.decide).
//
// # Reading order
//
// From the retry loop to the reads and the resolution of locks: most calls go to later files.
//
// delete.go, client.go, txn.go, snapshot.go, commit.go, twophase.go, prewrite.go, onephase.go,
// commitstart.go, validate.go, timers.go, buffer.go, columns.go, changes.go, rowchanges.go,
// records.go, scan.go, reader.go, start.go, readbatch.go, prefetch.go, origin.go, heartbeat.go,
// resolve.go, async.go, stats.go, tracing.go, config.go, errors.go.
package txn

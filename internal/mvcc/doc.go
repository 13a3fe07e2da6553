// Package mvcc holds Percolator's rules as pure functions (§2.2, Figure 6): each takes a
// read-only View of one tablet and a request, and returns a result and the mutations to
// apply. There is no clock, goroutine, actor or disk in it; time is an argument, and the
// same inputs give the same outputs on every replica.
//
// The tablet actor calls it: it evaluates a request against its state, proposes the
// mutations as one Raft entry and answers when they are applied. A crash in between does
// nothing to this package, which holds no state: either all mutations of an operation are
// applied or none, and every operation may then be asked for again.
//
// # Invariants
//
// The numbers are those of the design, section 4; 8, 9 and 10 live in the client and the oracle.
//
//  1. Snapshot (§2, Figure 3; Figure 6 lines 8 to 24). A read at R returns the newest
//     write record with commit_ts ≤ R. A lock with start_ts ≤ R on the cell is returned
//     instead of an answer, unless it cannot change what is visible at R: a lock without
//     a write (13), a reservation with a known commit_ts > R, or a lock of an asynchronous
//     commit with MinCommitTS > R. [Get, Scan]
//
//  2. No lost update (Figure 6 lines 31 to 34). Prewrite at S looks for its own record
//     first; then it refuses if a write record has commit_ts ≥ S, or if any other
//     transaction's lock is on the cell. Therefore the intervals [start_ts, commit_ts] of
//     a cell's write records never overlap, which bounds the search for one's own.
//     [Prewrite, CheckOnePhase]
//
//  3. Primary first (§2.2). The primary's record or rollback is the one decision;
//     commit_ts is above start_ts and above the cell's newest record. Resolving without
//     the lock does nothing. [Commit, ResolveLock] The locks of an asynchronous commit decide
//     together (async.go): nothing rolls one back unless another one can never exist. [Rollback,
//     CheckTxnStatus]
//
//  4. A rollback leaves a record under a key of its own, and prewrite and commit refuse on it.
//     Rollback and CheckTxnStatus leave it also when there was no lock, ResolveLock does not.
//     [Rollback, CheckTxnStatus, ResolveLock]
//
//  5. Idempotence. Every operation may come twice or late. A transaction's own lock or
//     record is success, with the recorded commit_ts; nothing gets a second one. [all]
//
//  6. "Primary not found" is not "rolled back" before the expiry has passed by oracle
//     time, unless start_ts is below the bound, which refuses a late prewrite.
//     [CheckTxnStatus]
//
//  7. Liveness (§2.2). A positive death event stands in for the expiry; it only changes
//     when, never what. [CheckTxnStatus]
//
//  11. Bounded history. Reads, prewrites and one-phase commits below the bound are
//     refused. Between safepoint and bound "neither lock nor record" is a rollback; below
//     the safepoint it is unknown and nothing is inferred from it. [all] Collection
//     deletes what no read at the safepoint or above it finds, oldest first: a long value
//     with the record that names it, a newest delete when nothing is left that it hides,
//     and its acks with it. [Collect, CollectCells]
//
//  12. Notify travels with the write (§2.4): the same mutations hold the write record of
//     an observed cell and the N entry of each observer, N.ts = max(old, commit_ts). An
//     intent becomes these entries on commit. The first observer's is at the observed cell,
//     each further one's at its acknowledgment (docs/adr/0065). Clearing is conditional, and of
//     one observer's entry. What is pending names the oldest user's commit that caused it
//     (origin.go, docs/adr/0042). [Commit, ResolveLock, OnePhaseCommit, NotifyCells, ClearNotify,
//     FailNotify]
//
//  13. A lock without a write conflicts as a write does, and changes nothing that a read
//     sees: no reader waits for it, and when it is committed it leaves the newest
//     commit_ts of its kind in K, which Prewrite and CheckOnePhase compare with start_ts
//     as they do that of the newest record. A transaction's primary is a write: a lock is
//     refused. [Prewrite, CheckOnePhase, OnePhaseCommit, ResolveLock, CollectCells]
//
// # A transaction's life
//
// A cell goes through these states for transaction S; each arrow is one operation, and
// all its mutations are one batch:
//
//	nothing ── Prewrite ──▶ L (and D, if the value is long)
//	L ── Commit, ResolveLock(C) ──▶ W at C; the record before it moves to H; N if the column is observed
//	L ── Rollback, ResolveLock(0), CheckTxnStatus at the primary after the expiry ──▶ R
//	nothing ── Rollback, CheckTxnStatus at the primary after the expiry ──▶ R
//	nothing ── OnePhaseCommit ──▶ W at C, without an L: the reservation is in memory only
//	L without a write ── ResolveLock(C) ──▶ K at C, in place of an older one
//
// W, H and R are final; a later K replaces one. An intent goes the same way with I for L and
// N for W. "Nothing" is also what is found below the safepoint after W, H or R has been
// collected, and that is why nothing is inferred there.
//
// # Lookups
//
// Evaluation is the leader's critical path. Locks are in memory; on disk, a cell costs:
// Get one lookup (W), one more if the value is long, and one more if the read is below the newest
// record; Prewrite three (W, K, R), of which a leader almost always saves itself the last two, and
// H only if a newer record began after S; Commit one (W), and N if the column is observed; Rollback
// of a lock none. A test holds every operation to its number.
//
// # Errors
//
// A Status is an answer of the rules. An error is either a storage fault that the View
// reported, ErrCorrupt, or a fault of the request (ErrInvalid, *LimitError): then the
// operation was not evaluated and surely has no effects.
package mvcc

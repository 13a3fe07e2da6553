package mvcc

import "fmt"

// Asynchronous commits (docs/adr/0062). The locks of such a transaction have a MinCommitTS each,
// which the tablet's leader obtained from the oracle after it had reserved the cells. The primary's
// lock names all other cells. The transaction is committed, at the greatest MinCommitTS, once all
// of these locks exist; no record decides it. So nothing may remove one of these locks unless it is
// known that another one can never exist:
//
//   - CheckTxnStatus reports the primary's lock and leaves it, expired or not.
//   - Rollback reports StatusLive if all of its cells have such locks. A cell without lock and
//     record gets a rollback record, which refuses a late prewrite: that decides the transaction.
//   - Commit and ResolveLock apply a decision that their caller knows.
//
// The MinCommitTS of a lock never changes, so that everyone computes the same commit timestamp.

// MaxAsyncCells is the maximum number of cells of an asynchronous commit, and MaxAsyncBytes that of
// the bytes of rows and columns of all but the primary, which the primary's lock names.
const (
	MaxAsyncCells = 256
	MaxAsyncBytes = 16 << 10
)

// async reports whether the lock is part of an asynchronous commit.
func (l *Lock) async() bool { return l.MinCommitTS != 0 }

// checkAsync refuses what no correct client sends in a prewrite of an asynchronous commit. A lock
// without a write cannot be part of one: its cell keeps a record of only its newest commit, so that
// a later query there would not find the transaction.
func checkAsync(r *PrewriteRequest, lim Limits) error {
	if len(r.Intents) > 0 {
		return fmt.Errorf("%w: an asynchronous commit with weak notifications: "+
			"commit it in two phases", ErrInvalid)
	}
	if len(r.Secondaries) >= MaxAsyncCells {
		return fmt.Errorf("%w: an asynchronous commit of %d cells; at most %d", ErrInvalid,
			len(r.Secondaries)+1, MaxAsyncCells)
	}
	primary := false
	for i := range r.Writes {
		if r.Writes[i].Kind == KindLock {
			return fmt.Errorf("%w: an asynchronous commit of a lock without a write: "+
				"commit it in two phases", ErrInvalid)
		}
		primary = primary || r.Writes[i].Cell == r.Primary
	}
	if primary != (len(r.Secondaries) > 0) {
		return fmt.Errorf("%w: a prewrite of an asynchronous commit must name the other cells "+
			"if it has the primary, and only then", ErrInvalid)
	}
	bytes := 0
	for _, c := range r.Secondaries {
		if err := lim.CheckCell(c); err != nil {
			return err
		}
		bytes += len(c.Row) + len(c.Column)
	}
	if bytes > MaxAsyncBytes {
		return fmt.Errorf("%w: an asynchronous commit of cells with addresses of %d bytes; at most %d", ErrInvalid,
			bytes, MaxAsyncBytes)
	}
	return nil
}

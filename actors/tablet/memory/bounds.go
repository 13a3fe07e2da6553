package memory

import (
	"github.com/percolator-go/percolator/internal/mvcc"
)

// entryBound bounds the timestamps of the rollback records, or of the past locks, in a leader's
// tablet. It saves a lookup for each cell that a transaction writes: nearly all transactions are
// younger than any that was rolled back early, or that locked without writing, and an unsuccessful
// lookup searches all levels of the store.
//
// A rollback record names a transaction that had begun, and a past lock one that had committed. So
// all records that existed when the leader began to serve have timestamps below any that the oracle
// has assigned since; of those written since it keeps the greatest.
type entryBound struct {
	// first timestamp assigned to this leadership; 0 means none yet. For past locks it is 1 if
	// there were none at the start of the leadership.
	given mvcc.Timestamp
	// greatest timestamp of an entry written by this leadership
	own mvcc.Timestamp
}

// took records a timestamp requested since this replica leads.
func (b *entryBound) took(ts mvcc.Timestamp) {
	if b.given == 0 {
		b.given = ts
	}
}

// wrote records an entry that is about to be proposed.
func (b *entryBound) wrote(ts mvcc.Timestamp) { b.own = max(b.own, ts) }

// none reports whether there is certainly no entry at or above the timestamp.
func (b *entryBound) none(ts mvcc.Timestamp) bool {
	return b.given != 0 && ts >= b.given && ts > b.own
}

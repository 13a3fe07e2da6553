package memory

import (
	"github.com/percolator-go/percolator/internal/mvcc"
)

// entryBound is what a leader knows of the rollback records, or of the past locks, in its
// tablet, so that it need not look for one at each cell that a transaction writes: nearly all
// transactions are younger than any that was rolled back before its time, or that locked
// without writing, and a lookup that finds nothing asks all levels of the store.
//
// A rollback record names a transaction that had begun, and a past lock one that had
// committed. So all that were there when the leader began to serve have timestamps below any
// that the oracle has given out since; of what it has evaluated itself it keeps the greatest.
type entryBound struct {
	// the first that this leadership was given; 0: none yet. A tablet that had no entries
	// when it began needs none.
	given mvcc.Timestamp
	// the greatest timestamp of an entry that this leadership has written
	own mvcc.Timestamp
}

// took notes a timestamp that was asked for since this replica leads.
func (b *entryBound) took(ts mvcc.Timestamp) {
	if b.given == 0 {
		b.given = ts
	}
}

// wrote notes an entry that is about to be proposed.
func (b *entryBound) wrote(ts mvcc.Timestamp) { b.own = max(b.own, ts) }

// none reports whether there is surely no entry of the timestamp or a later one.
func (b *entryBound) none(ts mvcc.Timestamp) bool {
	return b.given != 0 && ts >= b.given && ts > b.own
}

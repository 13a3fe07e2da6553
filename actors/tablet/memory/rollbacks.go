package memory

import (
	"github.com/percolator-go/percolator/internal/mvcc"
)

// rollbacks is what a leader knows of the rollback records in its tablet, so that it need
// not look for one at each cell that a transaction writes: nearly all transactions are
// younger than any that was rolled back before its time, and a lookup that finds nothing
// asks all levels of the store.
//
// A record names a transaction that had begun. So all that were there when the leader
// began to serve are of start timestamps below any that the oracle has given out since;
// what it has evaluated itself it keeps the greatest of.
type rollbacks struct {
	given mvcc.Timestamp // the first that this leadership was given; 0: none yet
	// the greatest start timestamp that this leadership has written a record of
	own mvcc.Timestamp
}

// took notes a timestamp that was asked for since this replica leads.
func (r *rollbacks) took(ts mvcc.Timestamp) {
	if r.given == 0 {
		r.given = ts
	}
}

// evaluated notes effects that are about to be proposed.
func (r *rollbacks) evaluated(m *mvcc.Mutation) {
	if m.Group == mvcc.GroupRollback && !m.Delete {
		r.own = max(r.own, m.TS)
	}
}

// none reports whether the transaction surely has no rollback record.
func (r *rollbacks) none(start mvcc.Timestamp) bool {
	return r.given != 0 && start >= r.given && start > r.own
}

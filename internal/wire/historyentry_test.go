package wire_test

import (
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// A row's history does not name the other cells of an asynchronous commit: its reader may have no
// grant for their tables.
func TestHistoryLeavesOutNamedCells(t *testing.T) {
	lock := mvcc.Lock{StartTS: 7, MinCommitTS: 9, Secondaries: []mvcc.Cell{{Table: 17, Row: "secret"}}}
	got := wire.HistoryEntryPB(mvcc.HistoryEntry{Lock: &lock}).GetLock()
	if got.GetMinCommitTs() != 9 || len(got.GetSecondaries()) != 0 {
		t.Errorf("NAMED: a lock in a row's history: %v", got)
	}
	if len(wire.LockPB(lock).GetSecondaries()) != 1 {
		t.Error("a lock that is no history lacks its cells")
	}
}

package mvcc_test

import (
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// changed returns the cell of a row and a put of it.
func changed(row string, at mvcc.Timestamp) mvcc.CellWrite {
	return mvcc.CellWrite{
		Cell:  mvcc.Cell{Table: 16, Row: row, Column: "c"},
		Write: mvcc.Write{CommitTS: at, StartTS: at - 1, Kind: mvcc.KindPut, Value: []byte{byte(at)}},
	}
}

// TestChangesStopAtLocks: a lock, and a reservation whose commit timestamp is unknown or not above
// the read, keep later changes and the resolved timestamp below their transaction's commit. A lock
// without a write, one of another range, and a reservation that commits later do not.
func TestChangesStopAtLocks(t *testing.T) {
	recorded := []mvcc.CellWrite{changed("a", 20), changed("b", 12), changed("z", 11), changed("a", 4)}
	cell := mvcc.Cell{Table: 16, Row: "b", Column: "d"}
	other := mvcc.Cell{Table: 16, Row: "y", Column: "d"}
	for _, c := range []struct {
		what     string
		cell     mvcc.Cell
		lock     mvcc.Lock
		resolved mvcc.Timestamp
		changes  int
		blocking int
	}{
		{"no lock", cell, mvcc.Lock{StartTS: 31, Kind: mvcc.KindPut}, 30, 2, 0},
		{"a lock", cell, mvcc.Lock{StartTS: 15, Kind: mvcc.KindPut}, 15, 1, 1},
		{"a lock from before", cell, mvcc.Lock{StartTS: 7, Kind: mvcc.KindPut}, 10, 0, 1},
		{"a reservation", cell, mvcc.Lock{StartTS: 15, Token: 1, Kind: mvcc.KindPut}, 15, 1, 0},
		{"a reservation with a timestamp", cell, mvcc.Lock{StartTS: 15, CommitTS: 20, Token: 1, Kind: mvcc.KindPut}, 19, 1, 0},
		{"a reservation for later", cell, mvcc.Lock{StartTS: 15, CommitTS: 31, Token: 1, Kind: mvcc.KindPut}, 30, 2, 0},
		{"a lock without a write", cell, mvcc.Lock{StartTS: 15, Kind: mvcc.KindLock}, 30, 2, 0},
		{"a lock elsewhere", other, mvcc.Lock{StartTS: 15, Kind: mvcc.KindPut}, 30, 2, 0},
	} {
		v := mvcctest.NewMemView()
		v.PutLock(c.cell, c.lock)
		got, err := mvcc.Changes(v, mvcc.ChangesRequest{
			Span: mvcc.Span{Table: 16, End: "x", HasEnd: true}, Since: 10, At: 30, MaxBytes: 1 << 20,
		}, recorded)
		if err != nil {
			t.Fatal(err)
		}
		if got.Resolved != c.resolved || len(got.Changes) != c.changes {
			t.Errorf("LOCK-PASSED: %s: %d changes up to %d, want %d up to %d", c.what, len(got.Changes),
				got.Resolved, c.changes, c.resolved)
		}
		if len(got.Locks) != c.blocking {
			t.Errorf("%s: %d locks named, want %d", c.what, len(got.Locks), c.blocking)
		}
	}
}

// TestPagesOfChanges: pages divide changes with one commit timestamp, without a gap or a double.
func TestPagesOfChanges(t *testing.T) {
	recorded := []mvcc.CellWrite{
		changed("c", 12), changed("a", 12), changed("b", 12), changed("a", 14), changed("d", 11),
	}
	r := mvcc.ChangesRequest{Span: mvcc.Span{Table: 16}, Since: 10, At: 30, MaxBytes: 1}
	rows := ""
	for {
		got, err := mvcc.Changes(mvcctest.NewMemView(), r, recorded)
		if err != nil || len(got.Changes) != 1 {
			t.Fatalf("%d changes in a page after %q: %v", len(got.Changes), rows, err)
		}
		last := got.Changes[0]
		rows += last.Cell.Row
		if !got.More {
			break
		}
		r.Since, r.After = last.CommitTS-1, &last.Cell
	}
	if rows != "dabca" {
		t.Errorf("the pages have the rows %q", rows)
	}
}

// TestChangesStopBelowAsyncLocks: an undecided asynchronous commit may commit at the timestamp of its
// lock, so a feed is complete only below it. Catches BROKEN=async_resolved.
func TestChangesStopBelowAsyncLocks(t *testing.T) {
	v := mvcctest.NewMemView()
	v.PutLock(parseCell("a.x"), mvcc.Lock{
		StartTS: 10, Primary: parseCell("a.x"), Kind: mvcc.KindPut, MinCommitTS: 20, CommitsAbove: 25,
	})
	for at, want := range map[mvcc.Timestamp]mvcc.Timestamp{19: 19, 20: 19, 30: 19} {
		r := mvcc.ChangesRequest{Span: wholeTable, Since: 5, At: at, MaxBytes: 1000}
		got, err := mvcc.Changes(v, r, nil)
		if err != nil || got.Resolved != want {
			t.Errorf("ASYNC-RESOLVED: at %d resolved to %d, want %d; %v", at, got.Resolved, want, err)
		}
	}
}

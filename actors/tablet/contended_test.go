package tablet

import (
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestContended: refusals are counted by row in a bounded number of rows; a row that recurs stays,
// however many others occur.
func TestContended(t *testing.T) {
	var c Contended
	conflict := func(row string) {
		c.observe(mvcc.Result{Status: mvcc.StatusConflict, ConflictAt: mvcc.Cell{Table: 16, Row: row}})
	}
	for i := range 10 * maxContended {
		conflict(fmt.Sprint(i))
		conflict("hot")
		c.observe(mvcc.Result{Status: mvcc.StatusLocked, Locks: []mvcc.LockInfo{
			{Cell: mvcc.Cell{Table: 16, Row: "hot"}},
		}})
		c.observe(mvcc.Result{Status: mvcc.StatusOK, ConflictAt: mvcc.Cell{Table: 16, Row: "fine"}})
	}
	rows := c.Read()
	if len(rows) != maxContended || rows[0].Row != "hot" || rows[0].Table != 16 {
		t.Fatalf("%d rows, the first %+v; want maxContended, the first hot", len(rows), rows[0])
	}
	if r := rows[0]; r.Locked != 10*maxContended || r.Conflicts != 10*maxContended || r.AtMost != 0 {
		t.Errorf("the hot one: %+v", r)
	}
	for _, r := range rows[1:] {
		if r.Row == "fine" || r.Sum() > r.AtMost+1 {
			t.Errorf("%+v: want no row fine, and counts of at most AtMost+1", r)
		}
	}
}

package memory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
)

func (q *notifyQueue) rows() string {
	var out []string
	q.tree.Scan(func(n evaluate.Queued) bool {
		out = append(out, fmt.Sprint(n.Notify.Cell.Row, uint64(n.Notify.Notify.TS)))
		return true
	})
	return strings.Join(out, " ")
}

// TestQueueOrder: first come, first served; a cell that changes again keeps its place, one whose
// run failed or was left moves to the end, and a parked one has no place.
func TestQueueOrder(t *testing.T) {
	q := newNotifyQueue()
	now := map[string]*mvcc.Notify{}
	set := func(row string, n *mvcc.Notify) {
		q.change(&Change{cell: mvcc.Cell{Row: row}, before: now[row], after: n}, 4)
		now[row] = n
	}
	check := func(what, want string) {
		t.Helper()
		if got := q.rows(); got != want {
			t.Errorf("%s: the order is %q, want %q", what, got, want)
		}
		if len(q.places) != q.tree.Len() {
			t.Errorf("%s: %d places of %d", what, len(q.places), q.tree.Len())
		}
	}
	for i, row := range []string{"c", "a", "b"} {
		set(row, &mvcc.Notify{TS: mvcc.Timestamp(i + 1)})
	}
	check("as they came", "c1 a2 b3")
	set("c", &mvcc.Notify{TS: 9})
	check("changed again", "c9 a2 b3")
	set("a", &mvcc.Notify{TS: 2, Attempts: 1})
	check("failed", "c9 b3 a2")
	q.back("c")
	check("left by a run", "b3 a2 c9")
	q.back("c")
	q.back("none")
	set("b", &mvcc.Notify{TS: 3, Attempts: 5, ParkedTS: 7})
	check("parked", "a2 c9")
	set("b", &mvcc.Notify{TS: 10, Replay: true})
	check("replayed", "a2 c9 b10")
	set("d", &mvcc.Notify{TS: 11})
	set("e", &mvcc.Notify{TS: 12})
	check("full", "a2 c9 b10 d11")
	set("a", nil)
	set("f", &mvcc.Notify{TS: 13})
	if check("what comes later does not overtake what had no room", "c9 b10 d11"); !q.lost {
		t.Error("nothing is reported as missing")
	}
	tree := newNotifyTree()
	for i, row := range slices.Backward([]string{"x", "y", "z"}) {
		tree.Set(mvcc.CellNotify{
			Cell: mvcc.Cell{
				Row: row,
			}, Notify: mvcc.Notify{TS: mvcc.Timestamp(10 - i), ParkedTS: mvcc.Timestamp(i % 2)},
		})
	}
	q = queueOf(tree)
	check("loaded", "z8 x10")
}

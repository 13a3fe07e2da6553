package backup_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestObserversDoNotRun: restored cells do not notify observers unless requested: then the observer
// runs once for each unacknowledged change, and for nothing else.
func TestObserversDoNotRun(t *testing.T) {
	col := percolator.Column{Table: "bank", Name: "v"}
	var mu sync.Mutex
	ran := map[string]int{} // by node and row
	registering := func(node string) func(*percolator.Registry) {
		return func(r *percolator.Registry) {
			r.Strong("watch", col, func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
				mu.Lock()
				defer mu.Unlock()
				ran[node+" "+n.Row]++
				tx.Set(n.Row, percolator.Column{Table: "bank", Name: "seen"}, []byte("x"))
				return nil
			})
			// Another observer of the column, which has acknowledged everything.
			r.Strong("watch too", col, func(context.Context, *percolator.Tx, percolator.Notification) error {
				mu.Lock()
				defer mu.Unlock()
				ran[node+" too"]++
				return nil
			})
		}
	}
	runs := func(node string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for i := range 20 {
			n += ran[fmt.Sprintf("%s row%d", node, i)]
		}
		return n
	}
	from := percolatortest.Start(t, registering("from"))
	for i := range 10 {
		set(t, from.DB(), "bank", fmt.Sprintf("row%d", i), "seen")
	}
	must(t, from.DB().WaitIdle(t.Context()))
	paused := true
	_, err := handle.Client(from.DB()).Admin().ControlObserver(t.Context(),
		&pb.ControlObserverRequest{Name: "watch", Paused: &paused})
	must(t, err)
	for i := range 3 {
		set(t, from.DB(), "bank", fmt.Sprintf("row%d", 8+i), "unseen")
	}
	must(t, from.DB().WaitIdle(t.Context())) // for the other observer
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})

	quiet := percolatortest.Start(t, registering("quiet"))
	_, err = backup.Restore(t.Context(), handle.Client(quiet.DB()), l, backup.RestoreOptions{})
	must(t, err)
	must(t, quiet.DB().WaitIdle(t.Context()))
	if n := runs("quiet"); n != 0 {
		t.Errorf("NOTIFIED: %d runs after a restore", n)
	}
	equal(t, "with its observer", contentsNow(t, quiet.DB(), "bank"), contentsNow(t, from.DB(), "bank"))
	// Later changes are observed.
	set(t, quiet.DB(), "bank", "row1", "new")
	must(t, quiet.DB().WaitIdle(t.Context()))
	if n := runs("quiet"); n != 1 {
		t.Errorf("%d runs for a change", n)
	}

	asked := percolatortest.Start(t, registering("asked"))
	r, err := backup.Restore(t.Context(), handle.Client(asked.DB()), l, backup.RestoreOptions{Notify: true})
	must(t, err)
	must(t, asked.DB().WaitIdle(t.Context()))
	if n := runs("asked"); n != 3 || r.Notified != 3 || ran["asked too"] != 0 {
		t.Errorf("UNSEEN: %d runs and %d notifications for 3 changes that were not seen, and %d runs of "+
			"an observer that has seen all", n, r.Notified, ran["asked too"])
	}
}

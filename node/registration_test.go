package node_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
)

// watchAll runs an observer for each column, named after the column.
type watchAll struct {
	columns []percolator.Column
	rows    chan string // table/column/row
}

func (w *watchAll) register(r *percolator.Registry) {
	for _, c := range w.columns {
		r.Strong(c.Table+"-"+c.Name, c, func(_ context.Context, _ *percolator.Tx,
			n percolator.Notification) error {
			w.rows <- c.Table + "/" + c.Name + "/" + n.Row
			return nil
		})
	}
}

// changed writes the cell and waits until its column's observer has run for it.
func (w *watchAll) changed(ctx context.Context, t *testing.T, db *percolator.DB, row string,
	c percolator.Column) {
	t.Helper()
	if err := set(ctx, db, row, c, []byte("x")); err != nil {
		t.Fatalf("%s.%s of row %q: %v", c.Table, c.Name, row, err)
	}
	for want := c.Table + "/" + c.Name + "/" + row; ; {
		select {
		case got := <-w.rows:
			if got == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("%s was changed, and no observer ran", want)
		}
	}
}

// spreadOverTwo waits until both nodes hold tablets of user tables: it moves the last one to the
// node that does not hold meta. It returns the node with meta, and a row of a user tablet there,
// once no tablet moves and settled reports true.
func (r *rig) spreadOverTwo(ctx context.Context,
	settled func([]*pb.TabletDescriptor) bool) (holder int, row string) {
	r.t.Helper()
	meta := r.status(ctx, cluster.MetaTablet)
	if meta == nil || len(meta.Tablet.Replicas) != 1 {
		r.t.Fatalf("meta has not one replica: %v", meta)
	}
	for i := range r.nodes {
		if r.id(i) == meta.NodeId {
			holder = i
		}
	}
	away := r.id(1 - holder)
	operator := handle.Client(r.nodes[holder].DB()).Admin()
	awaitTrue(ctx, r.t, "tablets on both nodes", func() bool {
		all := r.tablets(ctx)
		last := all[len(all)-1]
		if last.Replicas[0].NodeId != away || len(last.Replicas) != 1 {
			order := &pb.MoveTabletRequest{
				TabletId: last.TabletId, FromNode: meta.NodeId, ToNode: away,
			}
			if _, err := operator.MoveTablet(ctx, order); err != nil { // it is already being moved
				r.t.Log(err)
			}
			return false
		}
		if p := r.nodes[holder].Status().Placement; p == nil || p.Changing > 0 || p.Orders > 0 || !settled(all) {
			return false // a tablet being moved has voters on both nodes, and needs both to start
		}
		for _, d := range all {
			if start := wire.StartOf(d); start.Row != "" && len(d.Replicas) == 1 &&
				d.Replicas[0].NodeId == meta.NodeId {
				row = start.Row
				return true
			}
		}
		return false
	})
	return holder, row
}

// always is a condition of spreadOverTwo that is always true.
func always([]*pb.TabletDescriptor) bool { return true }

// resting returns a condition of spreadOverTwo: each tablet has one replica, and placement has not
// moved any for d.
func (r *rig) resting(d time.Duration) func([]*pb.TabletDescriptor) bool {
	var since time.Time
	var moves uint64
	return func(all []*pb.TabletDescriptor) bool {
		now := uint64(0)
		for _, n := range r.nodes {
			if p := n.Status().Placement; p != nil {
				now += p.Moves + p.Transfers
			}
		}
		if now != moves || since.IsZero() || slices.ContainsFunc(all, func(t *pb.TabletDescriptor) bool {
			return len(t.Replicas) != 1
		}) {
			since, moves = time.Now(), now
		}
		return time.Since(since) >= d
	}
}

// TestOpensBesideLostTablets: a node that holds the only replicas of some tablets is away. The
// other one is restarted with new observers, one of a table that cannot be created: it opens, leads
// meta with its jobs, serves its tablets, runs the observers there, and reports the missing parts.
// When the lost tablets are back, everything is registered.
func TestOpensBesideLostTablets(t *testing.T) {
	t.Parallel()
	ctx := within(t, 3*time.Minute)
	known, fresh := percolator.Column{Table: "watched", Name: "c"},
		percolator.Column{Table: "watched", Name: "d"}
	other := percolator.Column{Table: "other", Name: "c"}
	w := &watchAll{columns: []percolator.Column{known}, rows: make(chan string, 64)}
	var addrs []string // of the other node, whose port changes with its restart
	r := newRig(t, 2, func(_ int, c *node.Config) {
		c.Replicas, c.Placement.Busy, c.Placement.Rest, c.Observers = 1, 50*time.Millisecond,
			time.Hour, w.register
		c.Join = append(c.Join, addrs...)
	})
	rows := []string{"b", "c", "d", "e", "f"}
	if err := r.nodes[0].DB().CreateTable(ctx,
		percolator.TableSpec{Name: "watched", SplitKeys: rows}); err != nil {
		t.Fatal(err)
	}
	holder, sound := r.spreadOverTwo(ctx, r.resting(2*time.Second))
	lost := rows[len(rows)-1]
	r.stop(1 - holder)
	r.stop(holder)

	r.start(holder) // its observers are registered: it waits for no tablet
	n := r.nodes[holder]
	if why := n.Status().Registering; why != "" {
		t.Errorf("nothing is new, and something is to be registered: %s", why)
	}
	w.changed(ctx, t, n.DB(), sound, known)
	r.stop(holder)

	w.columns = append(w.columns, fresh, other)
	r.start(holder)
	n = r.nodes[holder]
	if why := n.Status().Registering; !strings.Contains(why, `table "other"`) ||
		!strings.Contains(why, "is missing on") {
		t.Errorf("two observers are new, and some tablets are lost; to be registered: %q", why)
	}
	awaitTrue(ctx, t, "jobs of meta's leader", func() bool { return n.Status().Placement != nil })
	w.changed(ctx, t, n.DB(), sound, known)
	w.changed(ctx, t, n.DB(), sound, fresh)
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := set(brief, n.DB(), lost, known, nil); !errors.Is(err, percolator.ErrUnavailable) &&
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a row of a lost tablet: %v", err)
	}

	addrs = []string{n.Addr()}
	r.start(1 - holder)
	awaitTrue(ctx, t, "everything is registered", func() bool {
		return n.Status().Registering == ""
	})
	w.changed(ctx, t, n.DB(), lost, fresh)
	w.changed(ctx, t, n.DB(), "r", other)
}

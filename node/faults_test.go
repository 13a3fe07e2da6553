package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// cut is a transport that executes a commit, loses its reply, and from then on does not reach the
// primary's tablet.
type cut struct {
	txn.Transport
	tablet atomic.Uint64
}

var errLost = errors.New("the reply was lost")

func (c *cut) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if c.tablet.Load() == d.TabletId {
		return nil, fmt.Errorf("%w: unreachable", txn.ErrNotSent)
	}
	r, err := c.Transport.Send(ctx, d, req)
	// An asynchronous commit is decided by its prewrites, of which the primary's names the
	// secondaries.
	decides := len(req.GetPrewrite().GetSecondaries()) > 0
	if decides || req.GetCommit() != nil || req.GetOnePhase() != nil {
		c.tablet.Store(d.TabletId)
		return nil, errLost
	}
	return r, err
}

// TestUnknownOutcome: the reply to the primary's commit is dropped and the primary is unreachable.
// User code runs once, the caller gets ErrCommitUnknown, and the state visible to others is all or
// nothing.
func TestUnknownOutcome(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, "", nil)
	if err := workload.Prepare(ctx, n.DB(), 2); err != nil {
		t.Fatal(err)
	}
	client := txn.NewClient(&cut{Transport: handle.Client(n.DB()).Transport()},
		txn.Config{SettleTimeout: 300 * time.Millisecond})
	db := handle.NewDB(client)
	runs := 0
	v := percolator.Column{Table: workload.Table, Name: "v"}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		runs++
		tx.Set("00", v, []byte("x"))
		tx.Set("ff", v, []byte("x"))
		return nil
	})
	if !errors.Is(err, percolator.ErrCommitUnknown) || runs != 1 {
		t.Fatalf("after %d runs: %v", runs, err)
	}
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	_, a, errA := s.Get(ctx, "00", v)
	_, b, errB := s.Get(ctx, "ff", v)
	if errA != nil || errB != nil || a != b {
		t.Errorf("half a transaction: %v %v, %v %v", a, errA, b, errB)
	}
	if !a {
		t.Error("the commit was carried out, so its writes must be there")
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// observed is an observer of one column that sends each row for which it runs to rows.
type observed struct {
	column percolator.Column
	rows   chan string
}

func watch() observed {
	return observed{
		column: percolator.Column{Table: "watched", Name: "c"}, rows: make(chan string, 16),
	}
}

func (o observed) register(r *percolator.Registry) {
	r.Strong("watcher", o.column, func(_ context.Context, _ *percolator.Tx,
		n percolator.Notification) error {
		o.rows <- n.Row
		return nil
	})
}

func (o observed) await(t *testing.T) string {
	t.Helper()
	select {
	case row := <-o.rows:
		return row
	case <-time.After(time.Minute):
		t.Fatal("the observer did not run within a minute")
		return ""
	}
}

// leaveSecondary does what a coordinator does that dies after the primary's commit: the secondary,
// a cell of the watched column in row "row", stays locked.
func leaveSecondary(ctx context.Context, t *testing.T, db *percolator.DB) {
	t.Helper()
	if err := workload.Prepare(ctx, db, 2); err != nil {
		t.Fatal(err)
	}
	client := handle.Client(db)
	tables, err := client.Tables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]mvcc.TableID{}
	for _, table := range tables {
		ids[table.Name] = mvcc.TableID(table.Id)
	}
	start, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	primary := mvcc.Cell{Table: ids[workload.Table], Row: "00", Column: "v"}
	secondary := mvcc.Cell{Table: ids["watched"], Row: "row", Column: "c"}
	expiry := mvcc.TimestampAt(start.Millis() + 1000)
	must := func(cell mvcc.Cell, req *pb.TabletRequest) {
		t.Helper()
		r, _, err := client.Send(ctx, wire.Position{Table: cell.Table, Row: cell.Row}, req)
		if err != nil || r.GetMutation().GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(r, err)
		}
	}
	for _, cell := range []mvcc.Cell{primary, secondary} {
		must(cell, &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: wire.CellPB(primary), Expiry: uint64(expiry),
			Worker: &pb.Worker{},
			Writes: []*pb.CellWrite{
				{Cell: wire.CellPB(cell), Kind: pb.Kind_KIND_PUT, Value: []byte("x")},
			},
		}}})
	}
	commit, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must(primary, &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
		StartTs: uint64(start), CommitTs: uint64(commit), Cells: []*pb.Cell{wire.CellPB(primary)},
	}}})
}

// TestSecondaryOfDeadCoordinator: a coordinator dies after the primary's commit. The observer of
// the secondary runs within seconds without a read of the cell: the sweep finds its lock.
func TestSecondaryOfDeadCoordinator(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := watch()
	n := open(t, "", func(c *node.Config) { c.Observers = o.register })
	leaveSecondary(ctx, t, n.DB())
	if row := o.await(t); row != "row" {
		t.Errorf("the observer ran for %q", row)
	}
}

// TestSweptWithoutItsObserver: a coordinator dies after the primary's commit, and the node that
// leads the secondary's tablet does not run the observer, since its program does not register it,
// or the node has no workers. It still sweeps the lock, and the other node runs the observer.
func TestSweptWithoutItsObserver(t *testing.T) {
	t.Parallel()
	for name, linked := range map[string]bool{"not linked": false, "no workers": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			o := watch()
			r := newRig(t, 2, func(i int, c *node.Config) {
				c.Placement.Off = true // node 0 leads every tablet
				if i == 1 || linked {
					c.Observers = o.register
				}
				if i == 0 {
					c.ObserverWorkers = 0
				}
			})
			leaveSecondary(ctx, t, r.nodes[0].DB())
			select {
			case row := <-o.rows:
				if row != "row" {
					t.Errorf("the observer ran for %q", row)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("UNSWEPT: the change's lock is still there after 30 s")
			}
		})
	}
}

// TestOneDirtyRowAmongMany: with hints off, the scanners find the one dirty cell of a large table
// (§2.4: they walk the notify group, not the cells).
func TestOneDirtyRowAmongMany(t *testing.T) {
	t.Parallel()
	rows, perTxn := 250_000, 2000
	if testing.Short() {
		rows = 50_000
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	dir, o := t.TempDir(), watch()
	fill := open(t, dir, nil)
	if err := fill.DB().CreateTable(ctx,
		percolator.TableSpec{Name: o.column.Table, SplitKeys: []string{"3", "6"}}); err != nil {
		t.Fatal(err)
	}
	l := fill.DB().Loader(percolator.LoaderConfig{Workers: 4})
	for from := 0; from < rows; from += perTxn {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := from; i < from+perTxn; i++ {
				tx.Set(fmt.Sprintf("%d/%07d", i%10, i), o.column, []byte("clean"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fill.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n := open(t, dir, func(c *node.Config) {
		c.Observers, c.Scanners, c.Notifications.NoHints = o.register, 8, true
	})
	begin := time.Now()
	err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("7/0123457", o.column, []byte("dirty"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if row := o.await(t); row != "7/0123457" {
		t.Errorf("the observer ran for %q", row)
	}
	t.Logf("found among %d rows after %v", rows, time.Since(begin).Round(time.Millisecond))
}

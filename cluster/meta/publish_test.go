package meta

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// away makes the tablet unreachable until the returned function is called.
func (w *world) away(tablet uint64) (back func()) {
	returned := make(chan struct{})
	w.via = func(ctx context.Context, to uint64, req *pb.TabletRequest) (*pb.TabletResponse,
		error) {
		if to == tablet {
			select {
			case <-returned:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return w.send(ctx, to, req)
	}
	return func() { close(returned) }
}

// TestUntoldTablets: a new observer is published to all tablets except one, which is away. It
// counts as registered only once that one has it too, for every caller, also after a restart;
// changes of tables do not wait for it.
func TestUntoldTablets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		w, m := newWorld(t)
		table, err := m.Schema.CreateTable(ctx, "t", []string{"k", "p"})
		if err != nil {
			t.Fatal(err)
		}
		lost := w.router.Locate(16, "m", 1)[0].TabletId
		back := w.away(lost)
		again := New(w.via, w.router, nil) // a restart
		observers := []*pb.ObserverInfo{
			{Name: "o", Table: table.Id, TableName: "t", Column: []byte("c")},
		}
		for _, m := range []*Meta{m, again} {
			began := time.Now()
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			err := register(attempt, m, observers)
			cancel()
			if !errors.Is(err, ErrUntold) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("EARLY-TOLD: an observer that tablet %d does not know is registered: %v",
					lost, err)
			} else if !strings.Contains(err.Error(), "version 1 is missing on 1 tablets") {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		for id := range w.held {
			if want := uint64(1); id != cluster.MetaTablet && id != lost && w.has[id] != want {
				t.Errorf("tablet %d has version %d of the catalogue, not %d", id, w.has[id], want)
			}
		}
		registered := make(chan error)
		go func() { registered <- register(ctx, m, observers) }()
		synctest.Wait()
		if _, err := m.Schema.CreateTable(ctx, "u", nil); err != nil {
			t.Error(err)
		}
		back()
		if err := <-registered; err != nil {
			t.Fatal(err)
		}
		w.checkCatalogue(1)
		ops := w.ops
		if err := register(ctx, again, observers); err != nil || w.ops-ops > 3 {
			t.Errorf("registered once more, in %d operations: %v", w.ops-ops, err)
		}
	})
}

// TestUntoldFullDisk: a tablet without space for the catalogue receives it once there is space, and
// does not delay the others.
func TestUntoldFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := newWorld(t)
		table, err := m.Schema.CreateTable(t.Context(), "t", []string{"k", "p"})
		if err != nil {
			t.Fatal(err)
		}
		full, tries := w.router.Locate(16, "m", 1)[0].TabletId, 0
		w.via = func(ctx context.Context, to uint64, req *pb.TabletRequest) (*pb.TabletResponse,
			error) {
			if to == full && tries < 3 {
				tries++
				return nil, &txn.ServerError{Code: pb.Error_CODE_DISK_FULL, Message: "test"}
			}
			return w.send(ctx, to, req)
		}
		observers := []*pb.ObserverInfo{
			{Name: "o", Table: table.Id, TableName: "t", Column: []byte("c")},
		}
		if err := register(t.Context(), m, observers); err != nil {
			t.Fatal(err)
		}
		if tries != 3 {
			t.Errorf("the tablet was queried %d times while it had no space", tries)
		}
		w.checkCatalogue(1)
	})
}

// TestUncovered: the rows not covered by the notified tablets.
func TestUncovered(t *testing.T) {
	w, m := newWorld(t)
	if _, err := m.Schema.CreateTable(context.Background(), "t", []string{"b", "c", "d"}); err != nil {
		t.Fatal(err)
	}
	rows := w.router.Locate(16, "", 100)
	all := []gap{{from: wire.StartOf(rows[0])}}
	for told := range 1 << len(rows) {
		var some []*pb.TabletDescriptor
		for i, d := range rows {
			if told>>i&1 == 1 {
				some = append(some, d)
			}
		}
		left := uncovered(all, some)
		for i, d := range rows {
			within := false
			for _, g := range left {
				within = within || !wire.StartOf(d).Less(g.from) &&
					(!g.bounded || wire.StartOf(d).Less(g.to))
			}
			if within == (told>>i&1 == 1) {
				t.Errorf("of %04b tablet %d is left: %v", told, i, within)
			}
		}
		if rest := uncovered(left, rows); len(rest) != 0 {
			t.Errorf("of %04b and all others %v is left", told, rest)
		}
	}
}

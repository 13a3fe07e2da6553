package node_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/test/workload"
)

// fillableDisk returns a store in memory, and the free bytes that it finds on its disk.
func fillableDisk(t testing.TB) (*store.Store, *atomic.Uint64) {
	t.Helper()
	free := &atomic.Uint64{}
	free.Store(math.MaxUint64)
	st, err := store.Open(store.Options{InMemory: true, FreeBytes: func() (uint64, error) {
		return free.Load(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return st, free
}

// TestNodeOnFullDisk: a node whose disk has 1 MiB free refuses writes and continues to read,
// beyond the oracle's mark; once there is space it writes, without a restart, and the refused
// writes have left nothing.
func TestNodeOnFullDisk(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st, free := fillableDisk(t)
	cfg := node.DefaultConfig()
	cfg.Store.InMemory, cfg.Insecure, cfg.Listen, cfg.HTTP = true, true, "", ""
	began, passed := time.Now(), atomic.Int64{} // in addition to real time
	n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Store: st, Clock: func() time.Time {
		return began.Add(time.Since(began) + time.Duration(passed.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(n.Close(ctx), st.Close()); err != nil {
			t.Error(err)
		}
	}()
	if err := workload.Prepare(ctx, n.DB(), 1); err != nil {
		t.Fatal(err)
	}
	column := percolator.Column{Table: workload.Table, Name: "c"}
	if err := set(ctx, n.DB(), "r", column, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := n.DB().WaitIdle(ctx); err != nil { // reads, and so waits until the write is applied
		t.Fatal(err)
	}
	free.Store(1 << 20)
	if err := st.Room(1); !errors.Is(err, store.ErrDiskFull) {
		t.Fatal(err)
	}
	last := percolator.Timestamp(0)
	for range 20 {
		passed.Add(int64(time.Second)) // the mark is 3 s ahead
		s, err := n.DB().Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s.StartTS() <= last {
			t.Fatalf("timestamp %v after %v", s.StartTS(), last)
		}
		last = s.StartTS()
		if v, ok, err := s.Get(ctx, "r", column); err != nil || !ok || string(v) != "1" {
			t.Fatalf("read %q, %v, %v", v, ok, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		err = set(ctx, n.DB(), "r", column, []byte("2"))
		if !errors.Is(err, percolator.ErrDiskFull) {
			t.Fatalf("a write: %v", err)
		}
	}
	free.Store(math.MaxUint64)
	if err := st.Room(1); err != nil {
		t.Fatal(err)
	}
	awaitTrue(ctx, t, "the node writes, when what was under way has been written", func() bool {
		err := set(ctx, n.DB(), "r", column, []byte("3"))
		if err != nil && !errors.Is(err, percolator.ErrDiskFull) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// TestFullNodeLeadsNothing: a node below its disk's watermark transfers its leaderships to nodes
// with space, and leads again once it has space. Clients with a long timeout see no error.
func TestFullNodeLeadsNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := newRig(t, 3, func(_ int, c *node.Config) {
		c.Placement = node.Placement{
			Busy: 20 * time.Millisecond, Interval: 200 * time.Millisecond, Rest: time.Second,
		}
	})
	if err := workload.Prepare(ctx, r.nodes[0].DB(), 4); err != nil {
		t.Fatal(err)
	}
	r.spread(ctx, 3)
	leads := func(i int) (n int, known bool) {
		for _, d := range r.tablets(ctx) {
			s := r.status(ctx, d.TabletId)
			if s == nil {
				return 0, false
			}
			if s.NodeId == r.id(i) {
				n++
			}
		}
		return n, true
	}
	full := 0
	awaitTrue(ctx, t, "each node leads something", func() bool {
		some := true
		for i := range r.nodes {
			n, known := leads(i)
			some = some && known && n > 0
			if s := r.status(ctx, cluster.MetaTablet); s != nil && s.NodeId == r.id(i) {
				full = i
			}
		}
		return some
	})
	r.free[full].Store(store.DefaultMinFreeBytes / 2)
	_ = r.stores[full].Room(0) // reads the free space
	column := percolator.Column{Table: workload.Table, Name: "c"}
	for i := range 16 {
		if err := set(ctx, r.nodes[(full+i)%3].DB(), string("0123456789abcdef"[i])+"0", column,
			[]byte("x")); err != nil {
			t.Errorf("a write while another node could take it: %v", err)
		}
	}
	awaitTrue(ctx, t, "the full node leads nothing", func() bool {
		n, known := leads(full)
		return known && n == 0
	})
	r.free[full].Store(math.MaxUint64)
	_ = r.stores[full].Room(0)
	awaitTrue(ctx, t, "it leads again", func() bool {
		n, known := leads(full)
		return known && n > 0
	})
}

package grow_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

const (
	tablets = 15 // of the table
	voters  = 3  // of each
	callers = 8
	// patience is a caller's timeout; rest is the interval between its transactions.
	patience = 10 * time.Second
	rest     = 5 * time.Millisecond
	// settling is the maximum time until the cluster is evenly loaded after a change: a tablet
	// moves at most once a minute.
	settling = 5 * time.Minute
)

var cell = percolator.Column{Table: "t", Name: "n"}

func TestMain(m *testing.M) {
	cluster.Main(nil)
	os.Exit(m.Run())
}

// TestGrowAndShrink: a cluster grows from one process to three and five, and shrinks to three,
// under writes. No caller with a timeout of patience sees an error, replicas, bytes and leaders
// are spread evenly each time, no acknowledged write is lost, and all replicas are equal.
func TestGrowAndShrink(t *testing.T) {
	if os.Getenv("GROW") == "" {
		t.Skip("minutes: five processes, and what was moved rests for a minute; make grow runs it")
	}
	ctx := t.Context()
	c, db := start(ctx, t, cluster.Config{Nodes: 1, Spare: 4})
	fill(ctx, t, db)
	w := startCallers(ctx, t, db)
	grow := func(from, to int) {
		for _, p := range c.Nodes()[from:to] {
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
		await(ctx, t, db, c.Nodes()[:to])
	}
	grow(1, 3)
	grow(3, 5)
	for _, p := range c.Nodes()[3:] {
		drain(ctx, t, db, p)
		if err := p.Terminate(time.Minute); err != nil {
			t.Error(err)
		}
	}
	await(ctx, t, db, c.Nodes()[:3])
	w.end(ctx)
	verify(ctx, t, db)
}

func start(ctx context.Context, t *testing.T,
	cfg cluster.Config) (*cluster.Cluster, *percolator.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := clustertest.Start(ctx, t, cfg)
	addrs := []string{c.Node(0).Listen, c.Node(1).Listen, c.Node(2).Listen}
	db, err := percolator.Dial(ctx, addrs, c.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	spec := percolator.TableSpec{Name: cell.Table}
	for i := 1; i < tablets; i++ {
		spec.SplitKeys = append(spec.SplitKeys, row(i, ""))
	}
	if err := db.CreateTable(ctx, spec); err != nil {
		t.Fatal(err)
	}
	return c, db
}

// row returns a row of the i-th tablet.
func row(i int, name string) string { return fmt.Sprintf("%02d/%s", i, name) }

// writers increment rows of their own, one in each tablet, and record the acknowledged counts.
type writers struct {
	t    *testing.T
	db   *percolator.DB
	stop context.CancelFunc
	runs sync.WaitGroup
	sums [callers][tablets]int
}

func startCallers(ctx context.Context, t *testing.T, db *percolator.DB) *writers {
	w := &writers{t: t, db: db}
	ctx, w.stop = context.WithCancel(ctx)
	t.Cleanup(func() { // also when the test fails
		w.stop()
		w.runs.Wait()
	})
	for id := range callers {
		w.runs.Go(func() {
			for i := 0; ; i = (i + 1) % tablets {
				if err := w.count(id, i); err != nil {
					t.Errorf("a patient caller, row %d: %v", i, err)
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(rest):
				}
			}
		})
	}
	return w
}

func (w *writers) count(id, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := row(i, strconv.Itoa(id))
	err := w.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		value, _, err := tx.Get(ctx, name, cell)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(value))
		tx.Set(name, cell, strconv.AppendInt(nil, int64(n+1), 10))
		return nil
	})
	if err == nil {
		w.sums[id][i]++
	}
	return err
}

// end stops the callers and compares the rows with the acknowledged counts.
func (w *writers) end(ctx context.Context) {
	w.stop()
	w.runs.Wait()
	s, err := w.db.Snapshot(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	total := 0
	for id := range callers {
		for i, want := range w.sums[id] {
			total += want
			value, _, err := s.Get(ctx, row(i, strconv.Itoa(id)), cell)
			if got, _ := strconv.Atoi(string(value)); err != nil || got != want {
				w.t.Errorf("row %d of caller %d holds %d and %d were acknowledged: %v", i, id, got,
					want, err)
			}
		}
	}
	w.t.Logf("%d transactions", total)
}

// await waits until the nodes hold about the same replicas and bytes, and lead about as many tablets.
func await(ctx context.Context, t *testing.T, db *percolator.DB, nodes []*cluster.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for why := ""; ; {
		r, err := handle.Client(db).Admin().Nodes(ctx, &pb.NodesRequest{})
		if err == nil {
			if why = uneven(r.GetNodes(), nodes); why == "" {
				t.Logf("%d nodes are even after %v: %s", len(nodes),
					time.Since(began).Round(100*time.Millisecond), spread(r.GetNodes()))
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d nodes are not even: %s, %v", len(nodes), why, err)
		}
	}
}

// spread formats the nodes' replicas/leaders/MiB.
func spread(all []*pb.Node) (text string) {
	for _, n := range all {
		text += fmt.Sprintf(" %d/%d/%d", n.Replicas, n.Leaders, n.SizeBytes>>20)
	}
	return text
}

// uneven returns why the nodes are not even; empty: each has the average of replicas, bytes and
// leaders, within 20% or one tablet, and together they hold everything three times.
func uneven(all []*pb.Node, want []*cluster.Process) string {
	const user = tablets + 1 // and meta's
	held, replicas, bytes := map[string]*pb.Node{}, 0, uint64(0)
	for _, n := range all {
		held[n.Listen] = n
		replicas, bytes = replicas+int(n.Replicas), bytes+n.SizeBytes
	}
	if filled := uint64(voters * filledBytes); replicas < user*voters || bytes < filled ||
		bytes > filled+filled/5 {
		return fmt.Sprintf("%d replicas in all, of %d bytes, where %d were filled", replicas, bytes,
			filled)
	}
	for _, f := range []struct {
		what   string
		tablet float64 // the largest one
		of     func(*pb.Node) float64
	}{
		{"replicas", 1, func(n *pb.Node) float64 { return float64(n.Replicas) }},
		{"leaders", 1, func(n *pb.Node) float64 { return float64(n.Leaders) }},
		{"bytes", fillOf(tablets-1) * fillValue, func(n *pb.Node) float64 {
			return float64(n.SizeBytes)
		}},
	} {
		sum := 0.0
		for _, p := range want {
			n := held[p.Listen]
			if n == nil || !n.Alive || n.State != pb.NodeState_NODE_STATE_ACTIVE {
				return fmt.Sprintf("node %d: %v", p.Index, n)
			}
			sum += f.of(n)
		}
		mean := sum / float64(len(want))
		for _, p := range want {
			has := f.of(held[p.Listen])
			if off := max(has-math.Ceil(mean), math.Floor(mean)-has); off > max(f.tablet, mean/5) {
				return fmt.Sprintf("node %d has %.0f %s, and all have %.1f on average", p.Index,
					has, f.what, mean)
			}
		}
	}
	return ""
}

// The sizes of values and of all of them: each tablet has one value more than the previous one, so
// that equal numbers of tablets can be very different numbers of bytes.
const (
	fillValue   = 256 << 10
	filledBytes = tablets * (tablets + 1) / 2 * fillValue
)

func fillOf(tablet int) float64 { return float64(tablet + 1) }

func fill(ctx context.Context, t *testing.T, db *percolator.DB) {
	t.Helper()
	value := make([]byte, fillValue)
	for i := range tablets {
		for n := range int(fillOf(i)) {
			err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(row(i, fmt.Sprintf("fill-%d", n)), cell, value)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// drain drains the node and waits until it holds no replica.
func drain(ctx context.Context, t *testing.T, db *percolator.DB, p *cluster.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := handle.Client(db).Admin().Nodes(ctx, &pb.NodesRequest{})
		for _, n := range r.GetNodes() {
			if n.Listen != p.Listen {
				continue
			}
			if n.State == pb.NodeState_NODE_STATE_DRAINED {
				t.Logf("node %d is drained after %v", p.Index,
					time.Since(began).Round(100*time.Millisecond))
				return
			}
			if n.State == pb.NodeState_NODE_STATE_ACTIVE {
				_, err = handle.Client(db).Admin().DrainNode(ctx, &pb.DrainNodeRequest{NodeId: n.NodeId})
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("node %d is not drained: %v, %v", p.Index, r.GetNodes(), err)
		}
	}
}

// verify compares the replicas of every tablet, as `percolator verify` does.
func verify(ctx context.Context, t *testing.T, db *percolator.DB) {
	t.Helper()
	all, err := handle.Client(db).Transport().Locate(ctx, mvcc.MetaTable, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < tablets+1 {
		t.Fatalf("%d tablets", len(all))
	}
	for _, d := range all {
		r, err := handle.Client(db).Admin().VerifyTablet(ctx,
			&pb.VerifyTabletRequest{TabletId: d.TabletId})
		if err != nil || !r.Equal || len(r.Replicas) != voters {
			t.Errorf("tablet %d: %v, %v", d.TabletId, r, err)
		}
	}
	t.Logf("%d tablets with 3 equal replicas each", len(all))
}

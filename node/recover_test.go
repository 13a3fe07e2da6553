package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/internal/salvage"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// loss is a cluster that loses a quorum permanently, and its earlier acknowledged rows.
type loss struct {
	*rig
	t     *testing.T
	acked []string // rows of acknowledged transactions, in order
	value percolator.Column
}

// write writes rows, each in a separate transaction, through a node, and returns their names.
func (l *loss) write(ctx context.Context, by int, phase string, n int) (rows []string) {
	l.t.Helper()
	for i := range n {
		row := fmt.Sprintf("%02x/%s/%d", i*256/n, phase, i)
		if err := set(ctx, l.nodes[by].DB(), row, l.value, []byte(row)); err != nil {
			l.t.Fatalf("%s: %v", row, err)
		}
		rows = append(rows, row)
	}
	l.acked = append(l.acked, rows...)
	return rows
}

// reaches waits until the store of a node has the rows.
func (l *loss) reaches(ctx context.Context, i int, table uint32, rows []string) {
	l.t.Helper()
	awaitTrue(ctx, l.t, fmt.Sprintf("node %d has all rows", i), func() bool {
		snap := l.stores[i].Snap()
		defer snap.Close()
		have := map[string]bool{}
		for c, err := range snap.Cells(mvcc.Span{Table: mvcc.TableID(table)}, false) {
			if err != nil {
				l.t.Fatal(err)
			}
			have[c.Cell.Row] = true
		}
		return !slices.ContainsFunc(rows, func(row string) bool { return !have[row] })
	})
}

// recover plans the recovery with the first nodes as survivors and applies it to their stores. All
// nodes have crashed; ids are their ids.
func (l *loss) recover(ids []uint64, survivors int) *salvage.Plan {
	l.t.Helper()
	var all []*salvage.Inspection
	for i := range survivors {
		in, err := salvage.Inspect(l.stores[i])
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, in)
	}
	plan, err := salvage.Make(all, salvage.Options{Dead: ids[survivors:], Now: time.Now()})
	for i := range survivors {
		if err == nil {
			err = salvage.Apply(l.stores[i], plan, "the test")
		}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return plan
}

// gone returns the acknowledged rows that no longer exist. It fails the test if a row has a
// different value.
func (l *loss) gone(ctx context.Context) (gone []string) {
	l.t.Helper()
	var found map[string]string
	awaitTrue(ctx, l.t, "all tablets serve", func() bool {
		s, err := l.nodes[0].DB().Snapshot(ctx)
		if err != nil {
			return false
		}
		defer func() { _ = s.Close() }()
		found = map[string]string{}
		for _, row := range l.acked {
			v, ok, err := s.Get(ctx, row, l.value)
			if err != nil {
				return false
			}
			if ok {
				found[row] = string(v)
			}
		}
		return true
	})
	for _, row := range l.acked {
		if v, ok := found[row]; !ok {
			gone = append(gone, row)
		} else if v != row {
			l.t.Errorf("row %q has the value %q", row, v)
		}
	}
	l.t.Logf("%d of %d acknowledged writes are gone: %v", len(gone), len(l.acked), gone)
	return gone
}

// isUnverified reports whether doctor reports an unverified recovery.
func (l *loss) isUnverified(ctx context.Context) bool {
	s, err := handle.Client(l.nodes[0].DB()).Admin().ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil {
		l.t.Fatal(err)
	}
	return slices.ContainsFunc(s.Findings, func(f *pb.Finding) bool { return f.Kind == "recovered-unverified" })
}

func (l *loss) tableID(ctx context.Context) uint32 {
	tables, err := handle.Client(l.nodes[0].DB()).Transport().Tables(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	i := slices.IndexFunc(tables, func(t *pb.Table) bool { return t.Name == workload.Table })
	return tables[i].Id
}

// TestTwoOfThreeLost: two of three nodes are lost permanently, and the third was isolated before.
// It continues alone, exactly without the rows acknowledged since; reports it until the recovery is
// verified; and is replicated again.
func TestTwoOfThreeLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l := &loss{rig: three(ctx, t, 3, nil), t: t, value: percolator.Column{Table: workload.Table, Name: "v"}}
	ids := []uint64{l.id(0), l.id(1), l.id(2)}
	for _, d := range l.tablets(ctx) {
		l.lead(ctx, d.TabletId, 1)
	}
	table := l.tableID(ctx)
	l.reaches(ctx, 0, table, l.write(ctx, 1, "before", 20))
	l.network.Isolate(ids[0])
	lost := l.write(ctx, 1, "cut-off", 20)
	for i := range ids {
		l.crash(i)
	}

	plan := l.recover(ids, 1)
	l.start(0)
	if gone := l.gone(ctx); !slices.Equal(gone, lost) {
		t.Errorf("gone are %v, lost were %v", gone, lost)
	}
	client := handle.Client(l.nodes[0].DB())
	now, _, err := client.Transport().Timestamps(ctx, 1)
	if err != nil || uint64(now) <= plan.Highest {
		t.Errorf("timestamp %d after %d, %v", now, plan.Highest, err)
	}
	if !l.isUnverified(ctx) {
		t.Error("UNVERIFIED: doctor does not report the recovery")
	}
	if _, err := client.Admin().FinishRecovery(ctx, &pb.FinishRecoveryRequest{Plan: plan.ID}); err != nil {
		t.Fatal(err)
	}
	if l.isUnverified(ctx) {
		t.Error("doctor reports the recovery as unverified after it was finished")
	}
	l.write(ctx, 0, "after", 10)

	if err := l.comeBack(ctx, 1); !errors.Is(err, cluster.ErrForgotten) {
		t.Errorf("DEAD-RETURNS: a node that was declared dead returns: %v", err)
	}
	l.add()
	l.add()
	l.spread(ctx, 3)
	for _, d := range l.tablets(ctx) {
		if sums := l.verified(ctx, t, d.TabletId); !sums.GetEqual() {
			t.Errorf("tablet %d: %v", d.TabletId, sums)
		}
	}
}

// comeBack starts a node on its old directory with the present address of the first one.
func (l *loss) comeBack(ctx context.Context, i int) error {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "127.0.0.1:0", "", true, true
	cfg.Join = []string{l.nodes[0].Addr()}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Store: l.stores[i]})
	if err == nil {
		err = n.Close(ctx)
	}
	return err
}

// TestThreeOfFiveLost: three of five nodes are lost. Of the two survivors, the one with the longer
// logs provides every tablet, and the entries that both have missed are gone.
func TestThreeOfFiveLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l := &loss{t: t, value: percolator.Column{Table: workload.Table, Name: "v"}}
	l.rig = newRig(t, 5, func(_ int, c *node.Config) {
		c.Replicas, c.Placement.Busy, c.Placement.Rest = 5, 50*time.Millisecond, time.Hour
	})
	if err := workload.Prepare(ctx, l.nodes[0].DB(), 3); err != nil {
		t.Fatal(err)
	}
	l.spread(ctx, 5)
	var ids []uint64
	for i := range l.nodes {
		ids = append(ids, l.id(i))
	}
	for _, d := range l.tablets(ctx) {
		l.lead(ctx, d.TabletId, 2)
	}
	table := l.tableID(ctx)
	rows := l.write(ctx, 2, "before", 20)
	l.reaches(ctx, 0, table, rows)
	l.network.Isolate(ids[0])
	l.reaches(ctx, 1, table, append(rows, l.write(ctx, 2, "one-cut-off", 20)...))
	l.network.Isolate(ids[1])
	lost := l.write(ctx, 2, "two-cut-off", 20)
	for i := range ids {
		l.crash(i)
	}

	plan := l.recover(ids, 2)
	for _, x := range plan.Tablets {
		if x.Action != salvage.Recover {
			t.Errorf("tablet %d: %s", x.Tablet, x.Action)
		}
	}
	started := make(chan struct{})
	go func() { // each may need the other
		defer close(started)
		l.start(1)
	}()
	l.start(0)
	<-started
	if gone := l.gone(ctx); !slices.Equal(gone, lost) {
		t.Errorf("gone are %v, lost were %v", gone, lost)
	}
	l.add()
	l.spread(ctx, 3)
}

// TestRowsWithoutSurvivor: the only replica of a tablet is lost, and meta has its quorum. The rows
// are named and, when abandoned, start empty; all others are present; the lost node is forgotten
// although meta's rows were not rewritten.
func TestRowsWithoutSurvivor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l := &loss{t: t, value: percolator.Column{Table: workload.Table, Name: "v"}}
	l.rig = newRig(t, 2, func(_ int, c *node.Config) {
		c.Replicas, c.Placement.Busy, c.Placement.Rest = 1, 50*time.Millisecond, time.Hour
	})
	if err := workload.Prepare(ctx, l.nodes[0].DB(), 3); err != nil {
		t.Fatal(err)
	}
	if holder, _ := l.spreadOverTwo(ctx, always); holder != 0 {
		t.Fatalf("node %d holds meta", holder)
	}
	ids := []uint64{l.id(0), l.id(1)}
	var lost []string
	for _, row := range l.write(ctx, 0, "before", 20) {
		for _, d := range l.tablets(ctx) {
			if d.Replicas[0].NodeId == ids[1] && wire.Holds(d, wire.Position{Table: mvcc.TableID(l.tableID(ctx)), Row: row}) {
				lost = append(lost, row)
			}
		}
	}
	l.crash(0)
	l.crash(1)

	in, err := salvage.Inspect(l.stores[0])
	if err != nil {
		t.Fatal(err)
	}
	opts := salvage.Options{Dead: ids[1:], Now: time.Now()}
	if _, err := salvage.Make([]*salvage.Inspection{in}, opts); !errors.Is(err, salvage.ErrGap) {
		t.Fatalf("GAP: %v", err)
	}
	opts.AcceptGaps = true
	plan, err := salvage.Make([]*salvage.Inspection{in}, opts)
	if err == nil {
		err = salvage.Apply(l.stores[0], plan, "the test")
	}
	if err != nil {
		t.Fatal(err)
	}
	l.start(0)
	if gone := l.gone(ctx); !slices.Equal(gone, lost) || len(lost) == 0 {
		t.Errorf("gone are %v, lost were %v", gone, lost)
	}
	awaitTrue(ctx, t, "the doctor knows of the recovery", func() bool { return l.isUnverified(ctx) })
	for _, row := range lost {
		if err := set(ctx, l.nodes[0].DB(), row, l.value, []byte(row)); err != nil {
			t.Fatal(err)
		}
	}
	if gone := l.gone(ctx); len(gone) > 0 {
		t.Errorf("what was written again is gone: %v", gone)
	}
	if err := l.comeBack(ctx, 1); !errors.Is(err, cluster.ErrForgotten) {
		t.Errorf("DEAD-RETURNS: a node that was declared dead returns: %v", err)
	}
}

// TestSomeTabletsKept: two of four nodes are lost. Tablets with two replicas on the others are
// unchanged and lose nothing; those with one continue from it; all are replicated again.
func TestSomeTabletsKept(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l := &loss{t: t, value: percolator.Column{Table: workload.Table, Name: "v"}}
	first, err := ports.Run(1) // a fixed address at which the other one, which votes with it, finds it again
	if err != nil {
		t.Fatal(err)
	}
	l.rig = newRig(t, 4, func(i int, c *node.Config) {
		c.Placement.Busy, c.Placement.Rest = 50*time.Millisecond, time.Millisecond
		switch addr := fmt.Sprintf("127.0.0.1:%d", first); i {
		case 0:
			c.Listen = addr
		case 1:
			c.Join = []string{addr}
		}
	})
	if err := workload.Prepare(ctx, l.nodes[0].DB(), 8); err != nil {
		t.Fatal(err)
	}
	l.placed(ctx, 9, 3, 0, 1, 2, 3)
	var ids []uint64
	for i := range l.nodes {
		ids = append(ids, l.id(i))
	}
	table := l.tableID(ctx)
	rows := l.write(ctx, 2, "before", 20)
	held := map[int][]string{}
	for _, d := range l.tablets(ctx) {
		for _, row := range rows {
			for i := range 2 {
				if wire.ReplicaOn(d, ids[i]) != nil && wire.Holds(d, wire.Position{Table: mvcc.TableID(table), Row: row}) {
					held[i] = append(held[i], row)
				}
			}
		}
	}
	l.reaches(ctx, 0, table, held[0])
	l.reaches(ctx, 1, table, held[1])
	for i := range ids {
		l.crash(i)
	}

	plan := l.recover(ids, 2)
	actions := map[string]int{}
	for _, x := range plan.Tablets {
		actions[x.Action]++
	}
	if actions[salvage.Keep] == 0 || actions[salvage.Recover] == 0 {
		t.Errorf("the tablets become %v", actions)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		l.start(1)
	}()
	l.start(0)
	<-started
	if gone := l.gone(ctx); len(gone) > 0 {
		t.Errorf("gone are %v", gone)
	}
	awaitTrue(ctx, t, "the doctor knows of the recovery", func() bool { return l.isUnverified(ctx) })
	l.add()
	l.spread(ctx, 3)
}

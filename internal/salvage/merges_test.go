package salvage

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// merging is a cluster that loses a quorum while tablet 9 is merged into tablet 2.
type merging struct {
	*world
	left, frozen *pb.TabletDescriptor
}

// newMerging creates five nodes, the given ones with a voter of meta and of both tablets, and
// tablet 12 behind these. Every replica of tablet 9 has applied the freeze, as before any take.
func newMerging(t *testing.T, nodes ...int) *merging {
	t.Helper()
	w := newWorld(t, 5)
	w.tablet(cluster.MetaTablet, "", "", nodes...)
	m := &merging{world: w, left: w.tablet(2, "", "m", nodes...)}
	right := w.tablet(9, "m", "x", nodes...)
	w.tablet(12, "x", "", 0, 3, 4)
	w.log(2, 6, []*wire.Command{write(3, "a", 100)}, nodes...)
	m.frozen = proto.CloneOf(right)
	m.frozen.Epoch = 4
	freeze := &wire.Command{Epoch: 3, Merge: &wire.Merge{Tablet: m.frozen, Left: m.left}}
	w.log(9, 6, []*wire.Command{write(3, "o", 110), freeze}, nodes...)
	for _, i := range nodes {
		if err := tablet.ApplyLog(w.stores[i], 9, store.InitialIndex+2); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// take returns the entry by which the left tablet takes the rows.
func (m *merging) take() *wire.Command {
	d := proto.CloneOf(m.left)
	d.Epoch, d.EndRow = 5, m.frozen.EndRow
	return &wire.Command{Epoch: 3, Merge: &wire.Merge{Tablet: d, Right: m.frozen}}
}

// release returns the entry that releases the frozen tablet.
func (m *merging) release() *wire.Command {
	d := proto.CloneOf(m.frozen)
	d.Epoch = 5
	return &wire.Command{Epoch: 4, Merge: &wire.Merge{Tablet: d}}
}

// state returns the tablet's state in the node's store; nil without a replica.
func (m *merging) state(i int, id uint64) *wire.TabletState {
	m.t.Helper()
	if m.stored(i, id) == nil {
		return nil
	}
	c, err := snapshot.Capture(m.stores[i].Snap(), id)
	if err != nil {
		m.t.Fatal(err)
	}
	c.Snap.Close()
	return c.State
}

// TestTakeInTheLog: the surviving log ends with, or continues behind, an entry that takes the rows
// of a frozen tablet. Apply merges the two replicas, also after a power failure at any point.
func TestTakeInTheLog(t *testing.T) {
	for cut := 0; ; cut++ {
		m := newMerging(t, 0, 1, 2, 3, 4)
		m.log(2, 7, []*wire.Command{write(3, "b", 120), m.take(), write(5, "p", 130)}, 0)
		plan, err := m.plan(false, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := of(plan, 2); got.Node != m.ids[0] || !slices.Equal(plan.Obsolete, []uint64{9}) {
			t.Fatalf("TAKE-DROPPED: tablet 2 continues as %+v, obsolete are %d", got, plan.Obsolete)
		}
		left := cut
		err = apply(m.stores[0], plan, "me", func() error {
			if left--; left < 0 {
				return errCut
			}
			return nil
		})
		done := err == nil
		if cut > 0 && !done {
			m.crash(0, uint64(cut))
			if err := Apply(m.stores[0], plan, "me"); err != nil {
				t.Fatalf("after %d steps: %v", cut, err)
			}
		}
		if cut > 0 {
			m.crash(0, uint64(cut))
			if rows := m.rows(0); !slices.Equal(rows, []string{"a", "b", "o", "p"}) {
				t.Errorf("TAKE-DROPPED: after %d steps rows %q continue", cut, rows)
			}
			if s := m.state(0, 2); s.GetTook().GetTabletId() != 9 || string(s.Tablet.EndRow) != "x" || m.state(0, 9) != nil {
				t.Errorf("after %d steps tablet 2 is %v, tablet 9 %v", cut, s, m.state(0, 9))
			}
		}
		if done {
			return
		}
	}
}

// TestFrozenIsReleased: no surviving log takes the rows of a frozen tablet, so this tablet
// continues alone and is unfrozen.
func TestFrozenIsReleased(t *testing.T) {
	m := newMerging(t, 0, 1, 2, 3, 4)
	plan := m.apply(0)
	if left, right := of(plan, 2), of(plan, 9); left.Action != Recover || right.Action != Recover {
		t.Fatalf("the tablets continue as %+v, %+v", left, right)
	}
	if s := m.state(0, 9); s.FrozenFor != nil {
		t.Errorf("STAYS-FROZEN: tablet 9 is %v", s)
	}
	if rows := m.rows(0); !slices.Equal(rows, []string{"a", "o"}) {
		t.Errorf("rows %q continue", rows)
	}
}

// TestReleasedIsNotTaken: another survivor shows that the frozen tablet was released, and written,
// since. So the entry that takes its rows is not committed, and is dropped with all later ones.
func TestReleasedIsNotTaken(t *testing.T) {
	m := newMerging(t, 0, 1, 2, 3, 4)
	split := m.split(2, 11, "c") // of the merged tablet
	split.Epoch, split.Split.Left.Epoch, split.Split.Right.Epoch = 5, 6, 6
	m.log(2, 7, []*wire.Command{write(3, "b", 120), m.take(), split}, 0)
	m.log(9, 8, []*wire.Command{m.release(), write(5, "p", 130)}, 1)
	plan := m.apply(0, 1)
	left, right := of(plan, 2), of(plan, 9)
	if left.Node != m.ids[0] || string(left.Descriptor.EndRow) != "m" || of(plan, 11).Tablet != 0 {
		t.Errorf("RELEASED-TAKEN: tablet 2 continues as %+v, tablet 11 as %+v", left, of(plan, 11))
	}
	if right.Action != Recover || right.Node != m.ids[1] {
		t.Fatalf("RELEASED-TAKEN: tablet 9 continues as %+v", right)
	}
	if rows := m.rows(0); !slices.Equal(rows, []string{"a", "b"}) {
		t.Errorf("RELEASED-TAKEN: tablet 2 has rows %q", rows)
	}
	if rows := m.rows(1); !slices.Equal(rows, []string{"o", "p"}) {
		t.Errorf("RELEASED-TAKEN: tablet 9 has rows %q", rows)
	}
}

// TestLivingMergeIsLeft: both tablets have their quorum, and the left one's log ends with the entry
// that takes the rows. The survivors decide whether it is committed: both tablets are left
// unchanged.
func TestLivingMergeIsLeft(t *testing.T) {
	m := newMerging(t, 0, 1, 2)
	m.log(2, 7, []*wire.Command{m.take()}, 0)
	plan := m.apply(0, 1)
	if left, right := of(plan, 2), of(plan, 9); left.Action != Keep || right.Action != Keep || of(plan, 12).Action != Recover {
		t.Errorf("the tablets continue as %+v, %+v", left, right)
	}
	for i := range 2 {
		if s := m.state(i, 9); s.GetFrozenFor().GetTabletId() != 2 || !slices.Equal(m.rows(i), []string{"o"}) {
			t.Errorf("MERGE-CUT-OFF: on node %d tablet 9 is %v, rows are %q", i, s, m.rows(i))
		}
	}
}

package salvage

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// users creates a cluster of five nodes: meta and one tablet, with five voters each.
func users(t *testing.T) *world {
	w := newWorld(t, 5)
	w.tablet(cluster.MetaTablet, "", "", 0, 1, 2, 3, 4)
	w.tablet(2, "", "", 0, 1, 2, 3, 4)
	return w
}

// TestLongestLogGoesOn: of two survivors of five, the replica with the highest term, then the
// highest index, is kept with its whole log; the other is removed permanently.
func TestLongestLogGoesOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		log  func(w *world)
		best int
		rows []string
	}{
		{"longer", func(w *world) {
			w.log(2, 6, []*wire.Command{write(3, "a", 100)}, 0, 1)
			w.log(2, 6, []*wire.Command{write(3, "b", 110)}, 1)
		}, 1, []string{"a", "b"}},
		{"later term", func(w *world) {
			w.log(2, 6, []*wire.Command{write(3, "a", 100), write(3, "b", 110)}, 0)
			w.log(2, 7, []*wire.Command{write(3, "c", 120)}, 1)
		}, 1, []string{"c"}},
		{"the same", func(w *world) {
			w.log(2, 6, []*wire.Command{write(3, "a", 100)}, 0, 1)
		}, -1, []string{"a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := users(t)
			tc.log(w)
			plan := w.apply(0, 1)
			got := of(plan, 2)
			if tc.best >= 0 && got.Node != w.ids[tc.best] {
				t.Fatalf("SHORTER-LOG: node %d continues, not %d", got.Node, w.ids[tc.best])
			}
			best := slices.Index(w.ids, got.Node)
			if rows := w.rows(best); !slices.Equal(rows, tc.rows) {
				t.Errorf("SHORTER-LOG: rows %q continue, not %q", rows, tc.rows)
			}
			if d := w.stored(1-best, 2); d != nil || len(w.rows(1-best)) > 0 {
				t.Errorf("the other node still has %v with rows %q", d, w.rows(1-best))
			}
			d := w.stored(best, 2)
			if len(d.Replicas) != 1 || d.Replicas[0].ReplicaId <= 6 || d.Epoch <= 3 ||
				d.NextReplicaId <= d.Replicas[0].ReplicaId {
				t.Errorf("the new group is %v", d)
			}
		})
	}
}

// TestMayLive: no plan is made while a quorum may be alive, and a tablet with a quorum is left
// unchanged.
func TestMayLive(t *testing.T) {
	w := newWorld(t, 3)
	w.tablet(cluster.MetaTablet, "", "", 0, 1, 2)
	w.tablet(2, "", "", 0, 1, 2)
	for _, tc := range []struct {
		name    string
		inspect []int
		dead    []uint64
		want    error
	}{
		{"one is not declared dead", []int{0}, []uint64{w.ids[1]}, ErrMayLive},
		{"none is", []int{0}, nil, ErrMayLive},
		{"dead and inspected", []int{0, 1}, []uint64{w.ids[1], w.ids[2]}, ErrUnfit},
		{"nobody knows the dead one", []int{0, 1, 2}, []uint64{5}, ErrUnfit},
		{"two survive", []int{0, 1}, []uint64{w.ids[2]}, ErrNothingLost},
		{"twice the same", []int{0, 0}, []uint64{w.ids[1], w.ids[2]}, ErrUnfit},
		{"no store", nil, nil, ErrUnfit},
	} {
		plan, err := Make(w.inspect(tc.inspect...), Options{Dead: tc.dead, Now: time.Now()})
		if !errors.Is(err, tc.want) {
			t.Errorf("QUORUM-MAY-LIVE: %s: %v, not %v; plan %v", tc.name, err, tc.want, plan)
		}
	}
	// Tablet 2 has lost its quorum, meta has not.
	other := newWorld(t, 4)
	other.tablet(cluster.MetaTablet, "", "", 0, 1, 2)
	other.tablet(2, "", "", 1, 2, 3)
	plan := other.apply(0, 1)
	if meta, user := of(plan, 1), of(plan, 2); meta.Action != Keep || user.Action != Recover || plan.Mark != 0 {
		t.Errorf("QUORUM-MAY-LIVE: %+v, %+v", meta, user)
	}
	if d := other.stored(1, 1); d.Epoch != 3 || len(d.Replicas) != 3 {
		t.Errorf("meta, which has a quorum, was changed: %v", d)
	}
}

// TestGrownInTheLog: the voters are those of the log, not of the last checkpoint: a leader that
// they elect replicates to the others.
func TestGrownInTheLog(t *testing.T) {
	for _, committed := range []bool{false, true} {
		w := newWorld(t, 3)
		w.tablet(cluster.MetaTablet, "", "", 0, 1, 2)
		d := proto.CloneOf(w.tablet(2, "", "", 0))
		d.Epoch++
		for _, i := range []int{1, 2} {
			d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: uint64(i) + 1, NodeId: w.ids[i]})
		}
		w.log(2, 6, []*wire.Command{{Epoch: 3, Replicas: d}}, 0)
		if committed {
			w.log(2, 6, []*wire.Command{write(4, "a", 100)}, 0)
		}
		plan := w.apply(0)
		if got := of(plan, 2); got.Action != Recover || len(got.Lost) != 2 {
			t.Errorf("committed %v: it becomes %+v", committed, got)
		}
		if d := w.stored(0, 2); len(d.Replicas) != 1 || d.Replicas[0].NodeId != w.ids[0] {
			t.Errorf("committed %v: its group is %v", committed, d)
		}
	}
}

// TestStale: a survivor that lacks entries it has acknowledged does not count for a quorum, and is
// kept if its log is the longest surviving one.
func TestStale(t *testing.T) {
	w := newWorld(t, 3)
	w.tablet(cluster.MetaTablet, "", "", 0, 1, 2)
	w.tablet(2, "", "", 0, 1, 2)
	w.log(2, 6, []*wire.Command{write(3, "a", 100)}, 0)
	err := installing(w.stores[0], func(i *snapshot.Installer) error {
		return i.MarkStale([]snapshot.Replica{{Tablet: 2, ReplicaID: 1}})
	})
	if err != nil {
		t.Fatal(err)
	}
	plan := w.apply(0, 1)
	if user, meta := of(plan, 2), of(plan, 1); meta.Action != Keep || user.Action != Recover ||
		user.Node != w.ids[0] {
		t.Errorf("%+v, %+v", meta, user)
	}
	d := w.stored(0, 2)
	if stale, err := snapshot.IsStale(w.stores[0], 2, d.Replicas[0].ReplicaId); stale || err != nil {
		t.Errorf("the replica that continues is stale: %v", err)
	}
}

// TestMark: the oracle's mark is above every timestamp in any survivor's log, applied or not, and
// counters are above all ids.
func TestMark(t *testing.T) {
	w := newWorld(t, 5)
	w.tablet(cluster.MetaTablet, "", "", 0, 1, 2, 3, 4)
	w.tablet(2, "", "m", 0, 1, 2, 3, 4)
	w.tablet(700, "m", "", 0, 1, 2, 3, 4)
	high := mvcc.TimestampAt(time.Now().Add(time.Hour).UnixMilli())
	w.log(1, 6, []*wire.Command{{Epoch: 3, RaiseMark: 1000}, {Epoch: 3, RaiseMark: 2000}}, 0)
	w.log(2, 6, []*wire.Command{write(3, "a", high)}, 1)
	plan := w.apply(0, 1)
	node := slices.Index(w.ids, of(plan, 1).Node)
	out, err := tablet.Inspect(w.stores[node], 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if out.Mark <= uint64(high) {
		t.Errorf("MARK-NOT-RAISED: the mark is %d, and %d was seen", out.Mark, high)
	}
	snap := w.stores[node].Snap()
	defer snap.Close()
	rows, err := metaRows(snap)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"next/table", "forgotten", "recovery/" + plan.ID} {
		if rows[row] == nil {
			t.Errorf("meta has no row %q", row)
		}
	}
	if next := binary.BigEndian.Uint64(rows["next/tablet"]); next <= 700 {
		t.Errorf("the next tablet gets the id %d", next)
	}
}

// TestSplitInTheLog: a tablet created by an entry that was not applied yet is kept too.
func TestSplitInTheLog(t *testing.T) {
	w := users(t)
	split := w.split(2, 9, "m")
	w.log(2, 6, []*wire.Command{write(3, "a", 100), write(3, "z", 110), split, write(4, "b", 120)}, 0, 1)
	plan := w.apply(0, 1)
	if left, right := of(plan, 2), of(plan, 9); left.Action != Recover || right.Action != Recover ||
		right.Node != left.Node || string(left.Descriptor.EndRow) != "m" {
		t.Fatalf("the sides continue as %+v, %+v", left, right)
	}
	node := slices.Index(w.ids, of(plan, 9).Node)
	if d := w.stored(node, 9); len(d.GetReplicas()) != 1 || len(w.stored(node, 2).GetReplicas()) != 1 {
		t.Errorf("the right side is %v", d)
	}
	if rows := w.rows(node); !slices.Equal(rows, []string{"a", "b", "z"}) {
		t.Errorf("rows %q continue", rows)
	}
	if w.stored(1-node, 2) != nil || w.stored(1-node, 9) != nil {
		t.Error("the other node has kept a replica")
	}
}

// split returns the entry that splits a tablet of all nodes, whose epoch is 3.
func (w *world) split(id, right uint64, at string) *wire.Command {
	l, r := w.stored(0, id), w.stored(0, id)
	l.EndTable, l.EndRow, l.EndUnbounded, l.Epoch = uint32(table), []byte(at), false, 4
	r.TabletId, r.StartTable, r.StartRow, r.Epoch = right, uint32(table), []byte(at), 4
	return &wire.Command{Epoch: 3, Split: &wire.Split{Left: l, Right: r}}
}

// TestBehindASplit: the only replica of the left side has not applied the split. It is kept without
// the rows that the right side has.
func TestBehindASplit(t *testing.T) {
	w := newWorld(t, 5)
	w.tablet(cluster.MetaTablet, "", "", 0, 1, 2, 3, 4)
	w.tablet(2, "", "", 0, 2, 3)
	w.log(2, 6, []*wire.Command{write(3, "a", 100), write(3, "z", 110)}, 0)
	right := w.tablet(9, "m", "", 2, 3) // as after the split, at epoch 4
	right.Epoch = 4
	right.Replicas = append(right.Replicas, &pb.Replica{ReplicaId: 2, NodeId: w.ids[1]})
	w.bootstrap(1, right)
	plan := w.apply(0, 1)
	left := of(plan, 2)
	if left.Action != Recover || string(left.Descriptor.EndRow) != "m" || left.Cleared == nil {
		t.Fatalf("the left side continues as %+v", left)
	}
	if rows := w.rows(0); !slices.Equal(rows, []string{"a"}) {
		t.Errorf("the left side has rows %q", rows)
	}
}

// TestGap: rows without a surviving replica are named, and abandoned only on request.
func TestGap(t *testing.T) {
	w := newWorld(t, 5)
	w.tablet(cluster.MetaTablet, "", "", 0, 1, 2, 3, 4)
	left := w.tablet(2, "", "m", 0, 3, 4)
	right := w.tablet(9, "m", "", 2, 3, 4)
	w.log(1, 6, []*wire.Command{mapped(3, left, right)}, 0, 1)
	if plan, err := w.plan(false, 0, 1); !errors.Is(err, ErrGap) {
		t.Fatalf("GAP: %v, plan %v", err, plan)
	}
	plan, err := w.plan(true, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := of(plan, 9)
	if got.Action != Create || string(got.Descriptor.StartRow) != "m" {
		t.Fatalf("it becomes %+v", got)
	}
	for _, i := range []int{0, 1} {
		if err := Apply(w.stores[i], plan, "me"); err != nil {
			t.Fatal(err)
		}
	}
	if d := w.stored(slices.Index(w.ids, got.Node), 9); len(d.GetReplicas()) != 1 || d.Epoch <= right.Epoch {
		t.Errorf("the empty tablet is %v", d)
	}
	// Without the meta tablet no plan is possible.
	none := newWorld(t, 3)
	none.tablet(cluster.MetaTablet, "", "", 0, 1)
	none.tablet(2, "", "", 0, 1, 2)
	if plan, err := none.plan(true, 2); !errors.Is(err, ErrGap) {
		t.Errorf("GAP: %v, plan %v", err, plan)
	}
}

// TestInterrupted: an Apply interrupted at any point, also by a power failure, prevents the node's
// start until the same Apply completes it.
func TestInterrupted(t *testing.T) {
	for cut := 0; ; cut++ {
		w := users(t)
		w.log(2, 6, []*wire.Command{write(3, "a", 100), w.split(2, 9, "m")}, 0, 1)
		w.log(2, 6, []*wire.Command{write(4, "b", 110)}, 1)
		plan, err := w.plan(false, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		done := true
		for _, i := range []int{0, 1} {
			left := cut
			err := apply(w.stores[i], plan, "me", func() error {
				if left--; left < 0 {
					return errCut
				}
				return nil
			})
			if err == nil {
				continue
			}
			done = false
			w.crash(i, uint64(cut))
			if _, err := join.OpenSelf(w.stores[i]); cut > 0 && !errors.Is(err, join.ErrUnfinishedRecovery) {
				t.Fatalf("HALF-APPLIED: after %d steps the node starts: %v", cut, err)
			} else if cut == 0 {
				break // nothing was written, and the node has started: another plan is needed
			}
			if err := Apply(w.stores[i], plan, "me"); err != nil {
				t.Fatalf("after %d steps: %v", cut, err)
			}
		}
		if cut > 0 {
			w.crash(1, uint64(cut))
			if rows := w.rows(1); !slices.Equal(rows, []string{"a", "b"}) {
				t.Errorf("after %d steps rows %q continue", cut, rows)
			}
			for _, id := range []uint64{2, 9} {
				if d := w.stored(1, id); len(d.GetReplicas()) != 1 || w.stored(0, id) != nil {
					t.Errorf("after %d steps tablet %d is %v and %v", cut, id, d, w.stored(0, id))
				}
			}
		}
		if done {
			if cut < 5 {
				t.Errorf("only %d steps were cut off", cut)
			}
			return
		}
	}
}

// TestOtherStore: a plan is valid only for the stores that it was made from, in the same state.
func TestOtherStore(t *testing.T) {
	w := users(t)
	text, err := json.Marshal(w.inspect(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	var read []*Inspection // as read from files of several machines
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	plan, err := Make(read, Options{Dead: w.ids[2:], Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(w.stores[2], plan, "me"); !errors.Is(err, ErrOtherStore) {
		t.Errorf("OTHER-STORE: that of a dead node: %v", err)
	}
	if err := Apply(w.stores[0], plan, "me"); err != nil {
		t.Fatal(err)
	}
	if err := Apply(w.stores[0], plan, "me"); !errors.Is(err, ErrApplied) {
		t.Errorf("a second time: %v", err)
	}
	if _, err := join.OpenSelf(w.stores[1]); err != nil {
		t.Fatal(err)
	}
	if err := Apply(w.stores[1], plan, "me"); !errors.Is(err, ErrOtherStore) {
		t.Errorf("OTHER-STORE: of a node that has run: %v", err)
	}
}

// TestOldCopy: a directory is refused if another survivor has a later start of it on record.
func TestOldCopy(t *testing.T) {
	w := users(t)
	self, err := join.OpenSelf(w.stores[0])
	if err != nil {
		t.Fatal(err)
	}
	ok, err := self.Confirm(w.ids[1], 9, []uint64{12345})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if plan, err := w.plan(false, 0, 1); !errors.Is(err, ErrUnfit) {
		t.Errorf("OLD-COPY: %v, plan %v", err, plan)
	}
}

// TestDeadStayOut: the start of a node that was declared dead is not confirmed any more.
func TestDeadStayOut(t *testing.T) {
	w := users(t)
	w.apply(0, 1)
	self, err := join.OpenSelf(w.stores[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range w.ids[1:] {
		ok, err := self.Confirm(id, 9, []uint64{7})
		if dead := i > 0; err != nil || ok == dead {
			t.Errorf("DEAD-RETURNS: node %d, dead: %v, was confirmed: %v, %v", id, dead, ok, err)
		}
	}
	if dead := fmt.Sprint(self.Recovery().Dead); dead != fmt.Sprint(slices.Sorted(slices.Values(w.ids[2:]))) {
		t.Errorf("dead are %s", dead)
	}
}

package meta

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// mergeStatus is a tablet's status in the world.
func (w *world) mergeStatus(tablet uint64) (*pb.TabletResponse, error) {
	d := w.held[tablet]
	if d == nil {
		return nil, &txn.ServerError{Code: pb.Error_CODE_WRONG_TABLET}
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Status{Status: &pb.StatusResponse{
		Tablet: d, Leader: true, FrozenFor: w.frozen[tablet], Took: w.took[tablet],
	}}}, nil
}

// merge does what a tablet does, and its node's report to the router.
func (w *world) merge(tablet uint64, epoch uint64, r *pb.MergeRequest) (*pb.TabletResponse, error) {
	d := w.held[tablet]
	if d == nil || d.Epoch != epoch {
		return nil, &txn.ServerError{Code: pb.Error_CODE_WRONG_TABLET}
	}
	next := proto.CloneOf(d)
	next.Epoch++
	switch r.Step {
	case pb.MergeRequest_STEP_FREEZE:
		w.frozen[tablet] = r.Other
	case pb.MergeRequest_STEP_TAKE:
		if w.frozen[r.Other.TabletId] == nil || w.held[r.Other.TabletId].Epoch != r.Other.Epoch {
			w.t.Errorf("TAKEN-AND-RELEASED: tablet %d takes the rows of tablet %d, which serves them", tablet,
				r.Other.TabletId)
		}
		next.EndTable, next.EndRow, next.EndUnbounded = r.Other.EndTable, r.Other.EndRow, r.Other.EndUnbounded
		next.Epoch = max(d.Epoch, r.Other.Epoch) + 1
		w.took[tablet] = r.Other
		delete(w.held, r.Other.TabletId)
		delete(w.frozen, r.Other.TabletId)
	default:
		delete(w.frozen, tablet)
		delete(w.took, tablet)
	}
	w.held[tablet] = next
	w.router.Update(next)
	return &pb.TabletResponse{Result: &pb.TabletResponse_Merge{Merge: &pb.MergeResponse{Tablet: next}}}, nil
}

// newMergeWorld has a table with a boundary at m.
func newMergeWorld(ctx context.Context, t *testing.T) (*world, *Meta, wire.Position) {
	t.Helper()
	w, m := newWorld(t)
	m.Merges.ask = func(ctx context.Context, _ uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
		return w.send(ctx, req.TabletId, req)
	}
	w.router.ReadFrom(m.Tablets.Tablets)
	table, err := m.Schema.CreateTable(ctx, "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Schema.SplitTablet(ctx, "t", "m"); err != nil {
		t.Fatal(err)
	}
	return w, m, wire.Position{Table: mvcc.TableID(table.Id), Row: "m"}
}

// finished finishes every half-done merge, as the job of meta's leader does, and checks that every
// row belongs to exactly one tablet, in the world and in meta.
func (w *world) finished(ctx context.Context, t *testing.T, m *Meta) {
	t.Helper()
	w.failAt = 0
	for half := true; half; {
		half = false
		for id := range w.held {
			r, err := w.mergeStatus(id)
			if err != nil || r.GetStatus().FrozenFor == nil && r.GetStatus().Took == nil {
				continue
			}
			half = true
			if err := m.Merges.Finish(ctx, r.GetStatus()); err != nil {
				t.Fatal(err)
			}
			break // the world has changed
		}
	}
	tablets, err := m.Tablets.Tablets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if users := len(w.held) - 1; len(tablets) != users { // all except meta's own
		t.Errorf("meta has %d tablets, and there are %d", len(tablets), users)
	}
	at := wire.Position{Table: mvcc.FirstUserTable}
	for _, d := range tablets {
		if w.held[d.TabletId] == nil || wire.StartOf(d) != at {
			t.Errorf("tablet %d begins at %v, and the one before ends at %v", d.TabletId, wire.StartOf(d), at)
		}
		at, _ = wire.EndOf(d)
	}
}

// TestMergeCutShort: the coordinator of a merge crashes at any operation, before or after it took
// effect. The half-done merge is found and finished; the tablets cover every row at all times, and
// later merges work.
func TestMergeCutShort(t *testing.T) {
	for _, after := range []bool{false, true} {
		for failAt, died := 1, true; died; failAt++ {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			w, m, at := newMergeWorld(ctx, t)
			w.ops, w.failAt, w.after = 0, failAt, after
			_, err := m.Merges.MergeAt(ctx, at)
			if died = w.ops >= failAt; !died && err != nil {
				t.Fatal(err)
			}
			w.finished(ctx, t, m)
			for range 2 { // the second is no error and has no effect
				if d, err := m.Merges.MergeAt(ctx, at); err != nil || wire.StartOf(d) == at {
					t.Fatalf("crash at %d (after: %v): merged again: %v, %v", failAt, after, d, err)
				}
			}
			w.finished(ctx, t, m)
			if len(w.held) != 2 {
				t.Errorf("crash at %d (after: %v): %d tablets", failAt, after, len(w.held))
			}
			cancel()
		}
	}
}

// TestLateTake: the request to take the rows is delayed, the frozen tablet is released, and then
// the request arrives: it has no effect.
func TestLateTake(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, m, at := newMergeWorld(ctx, t)
	var late func()
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
		if req.GetMerge().GetStep() == pb.MergeRequest_STEP_TAKE && late == nil {
			late = func() { _, _ = w.send(context.Background(), tablet, req) }
			return nil, route.ErrUnknown
		}
		return w.send(ctx, tablet, req)
	}
	if _, err := m.Merges.MergeAt(ctx, at); !errors.Is(err, ErrNotMerged) {
		t.Fatalf("merged: %v", err)
	}
	late()
	w.finished(ctx, t, m)
	if len(w.held) != 3 {
		t.Errorf("%d tablets", len(w.held))
	}
}

// TestReportFromBeforeAMerge: a late report of a tablet from before its merge restores it neither
// in the map nor in the router.
func TestReportFromBeforeAMerge(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, m, at := newMergeWorld(ctx, t)
	before := w.router.Locate(at.Table, at.Row, 1)[0]
	merged, err := m.Merges.MergeAt(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Tablets.Report(ctx, before); err != nil {
		t.Fatal(err)
	}
	w.router.Update(before)
	if d := w.router.Locate(at.Table, at.Row, 1); len(d) != 1 || d[0].TabletId != merged.TabletId {
		t.Errorf("MERGED-BACK: the router finds %v", d)
	}
	w.finished(ctx, t, m)
}

// TestMergeable: the boundaries that the merger may remove.
func TestMergeable(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	a, err := m.Schema.CreateTable(ctx, "a", []string{"asked"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Schema.SplitTablet(ctx, "a", "ordered"); err != nil {
		t.Fatal(err)
	}
	var dropped []uint32
	for _, name := range []string{"b", "c", "d"} {
		table, err := m.Schema.CreateTable(ctx, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if dropped = append(dropped, table.Id); name == "d" {
			break
		}
		if err := m.Schema.DropTable(ctx, name, table.Id); err != nil {
			t.Fatal(err)
		}
	}
	mergeable, err := m.Merges.Mergeable(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tablet := func(table uint32, row string, endTable uint32, end string) *pb.TabletDescriptor {
		return &pb.TabletDescriptor{StartTable: table, StartRow: []byte(row), EndTable: endTable, EndRow: []byte(end)}
	}
	b, c, d := dropped[0], dropped[1], dropped[2]
	for _, x := range []struct {
		what        string
		left, right *pb.TabletDescriptor
		may, unused bool
	}{
		{"of one table", tablet(a.Id, "", a.Id, "k"), tablet(a.Id, "k", a.Id, "l"), true, false},
		{"at a key of its creation", tablet(a.Id, "", a.Id, "asked"), tablet(a.Id, "asked", b, ""), false, false},
		{"at an ordered split", tablet(a.Id, "", a.Id, "ordered"), tablet(a.Id, "ordered", b, ""), false, false},
		{"of two tables", tablet(a.Id, "k", b, ""), tablet(b, "", c, ""), false, false},
		{"of dropped tables", tablet(b, "", c, ""), tablet(c, "", d, ""), true, true},
		{"a dropped one and the next", tablet(c, "", d, ""), tablet(d, "", d+1, ""), false, false},
	} {
		if may, unused := mergeable(x.left, x.right); may != x.may || unused != x.unused {
			t.Errorf("%s: %t, %t", x.what, may, unused)
		}
	}
}

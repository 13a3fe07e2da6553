package meta

import (
	"context"
	"errors"
	"slices"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/txn"
)

// dropTable drops the table that has the name at present, as a client does.
func dropTable(ctx context.Context, m *Meta, name string) error {
	t, err := m.Schema.Table(ctx, name)
	if err != nil {
		return err
	}
	return m.Schema.DropTable(ctx, name, t.GetId())
}

// TestDropSparesATableMadeAnew: between a client's lookup and its drop another client drops the
// table and recreates it. The new one stays, and the drop counts as done, however often it is
// repeated. A drop without a looked-up id does not.
func TestDropSparesATableMadeAnew(t *testing.T) {
	ctx := context.Background()
	w, m := newWorld(t)
	seen, err := m.Schema.CreateTable(ctx, "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := dropTable(ctx, m, "t"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // before the name is reused, and after; the first is a repeated request
		if err := m.Schema.DropTable(ctx, "t", seen.Id); err != nil {
			t.Errorf("dropped once more: %v", err)
		}
		if _, err := m.Schema.CreateTable(ctx, "t", nil); err != nil {
			t.Fatal(err)
		}
	}
	next, err := m.Schema.Table(ctx, "t")
	if err != nil || next == nil || next.Id == seen.Id {
		t.Fatalf("DROP-BY-NAME: after an order to drop table %d the name is that of %v, %v",
			seen.Id, next, err)
	}
	for _, id := range []uint32{0, next.Id + 1} {
		var refused *txn.ServerError
		if err := m.Schema.DropTable(ctx, "t", id); !errors.As(err, &refused) ||
			refused.Code != pb.Error_CODE_NO_TABLE {
			t.Errorf("DROP-BY-NAME: an order for table %d: %v", id, err)
		}
	}
	if now, err := m.Schema.Table(ctx, "t"); err != nil || now.GetId() != next.Id {
		t.Errorf("DROP-BY-NAME: the name belongs to %v, not to table %d, %v", now, next.Id, err)
	}
	c, err := m.Observers.Catalogue(ctx)
	if err != nil || !slices.Equal(c.DroppedTables, []uint32{seen.Id}) {
		t.Errorf("dropped: %v, %v", c.GetDroppedTables(), err)
	}
	w.checkCatalogue(c.Version)
}

// TestDropAgainSparesTheNextTable: the answer to the write that drops a table is lost, and before
// its outcome is read another client creates a table of that name. The new one stays.
func TestDropAgainSparesTheNextTable(t *testing.T) {
	ctx := context.Background()
	w, m := newWorld(t)
	other := New(w.send, w.router, nil)
	first, err := m.Schema.CreateTable(ctx, "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	var next *pb.Table
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse,
		error) {
		r, err := w.send(ctx, tablet, req)
		if req.GetRawWrite() == nil || next != nil || err != nil {
			return r, err
		}
		if next, err = other.Schema.CreateTable(ctx, "t", nil); err != nil {
			t.Fatal(err)
		}
		return nil, route.ErrUnknown
	}
	if err := dropTable(ctx, m, "t"); err != nil {
		t.Fatal(err)
	}
	if next == nil || next.Id == first.Id {
		t.Fatalf("the table was not recreated in between: %v after %v", next, first)
	}
	if now, err := m.Schema.Table(ctx, "t"); err != nil || now.GetId() != next.Id {
		t.Errorf("DROPPED-ANOTHER: after the drop of table %d the name belongs to %v, not to table %d, %v", first.Id, now, next.Id, err)
	}
	c, err := m.Observers.Catalogue(ctx)
	if err != nil || !slices.Equal(c.DroppedTables, []uint32{first.Id}) {
		t.Errorf("dropped: %v, %v", c.GetDroppedTables(), err)
	}
	w.checkCatalogue(c.Version) // the drop was still published
}

// TestLateCopiesOfACreation: copies of all writes of a table's creation arrive long after its drop,
// before and after it is forgotten. They recreate nothing, and a new table of that name gets a new
// id.
func TestLateCopiesOfACreation(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		lateCopies(t, forgotten)
	}
}

func lateCopies(t *testing.T, forgotten bool) {
	ctx := context.Background()
	w, m := newWorld(t)
	var copies []*pb.TabletRequest
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse,
		error) {
		if req.GetRawWrite() != nil {
			copies = append(copies, req)
		}
		return w.send(ctx, tablet, req)
	}
	first, err := m.Schema.CreateTable(ctx, "t", []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	w.via = w.send
	if err := dropTable(ctx, m, "t"); err != nil {
		t.Fatal(err)
	}
	if forgotten {
		if err := tendDrops(ctx, w, m); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // each call may update the other's route
		for _, late := range copies {
			if _, err := w.send(ctx, cluster.MetaTablet, late); err != nil {
				t.Fatal(err)
			}
		}
	}
	if tables, err := m.Schema.Tables(ctx); err != nil || len(tables) != 0 {
		t.Errorf("forgotten %v: late copies have brought back %v, %v", forgotten, tables, err)
	}
	again, err := m.Schema.CreateTable(ctx, "t", nil)
	if err != nil || again.Id == first.Id {
		t.Errorf("forgotten %v: the new table has the id of the dropped one: %v, %v", forgotten,
			again, err)
	}
}

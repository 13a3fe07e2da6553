package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestCreateTableInterrupted: whichever operation of a creation fails, before or after it took
// effect, the table exists with all its boundaries or not at all, and a second creation finishes
// it, with ids that were never used.
func TestCreateTableInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, after := range []bool{false, true} {
		died := true
		for failAt := 1; died; failAt++ {
			died = interrupt(ctx, t, failAt, after)
			if !died && failAt < 8 {
				t.Fatalf("a table was made in %d operations", failAt)
			}
		}
	}
}

// interrupt creates a table with a crash at an operation, and then creates it again; it returns
// false if the first creation ended before that operation.
func interrupt(ctx context.Context, t *testing.T, failAt int, after bool) (died bool) {
	w, m := newWorld(t)
	w.failAt, w.after = failAt, after
	first := w.router.Locate(mvcc.MetaTable, "", 100)
	_, err := m.Schema.CreateTable(ctx, "t", []string{"k", "p"})
	if err == nil {
		return false
	}
	if !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	w.checkTable(ctx, m, "died at operation", failAt)
	if _, err := m.Schema.CreateTable(ctx, "t", []string{"k", "p"}); err != nil {
		t.Fatal(err)
	}
	table, err := m.Schema.Table(ctx, "t")
	if err != nil || table == nil || len(table.SplitKeys) != 2 {
		t.Fatalf("made again: %v, %v", table, err)
	}
	w.checkTable(ctx, m, "made again after operation", failAt)
	for _, d := range w.router.Locate(mvcc.MetaTable, "", 100)[len(first):] {
		if of := wire.StartOf(d).Table; of != mvcc.TableID(table.Id) {
			t.Errorf("died at operation %d: tablet %d was left to table %d, which is nobody's; the table is %d", failAt, d.TabletId, of, table.Id)
		}
	}
	return true
}

// checkTable: a table that can be looked up has a boundary at its start and at each split key.
func (w *world) checkTable(ctx context.Context, m *Meta, what string, n int) {
	w.t.Helper()
	tables, err := m.Schema.Tables(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, table := range tables {
		for _, key := range append([][]byte{nil}, table.SplitKeys...) {
			d := w.router.Locate(mvcc.TableID(table.Id), string(key), 1)
			if len(d) == 0 || wire.StartOf(d[0]) != (wire.Position{Table: mvcc.TableID(table.Id),
				Row: string(key)}) {
				w.t.Errorf("%s %d: table %q has no boundary at %q", what, n, table.Name, key)
			}
		}
	}
}

// TestSplitKeysAreBounded: the number of tablets of one request is bounded.
func TestSplitKeysAreBounded(t *testing.T) {
	w, m := newWorld(t)
	var refused *txn.ServerError
	_, err := m.Schema.CreateTable(context.Background(), "t", make([]string, maxSplitKeys+1))
	if !errors.As(err, &refused) || refused.Code != pb.Error_CODE_TOO_LARGE || w.ops > 0 {
		t.Errorf("%v after %d operations", err, w.ops)
	}
}

// TestTableIDsAreNotReused: a dropped table's name is free, its id is not, and its tablets are
// notified.
func TestTableIDsAreNotReused(t *testing.T) {
	ctx := context.Background()
	w, m := newWorld(t)
	first, err := m.Schema.CreateTable(ctx, "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := dropTable(ctx, m, "t"); err != nil {
		t.Fatal(err)
	}
	var refused *txn.ServerError
	if err := dropTable(ctx, m, "t"); !errors.As(err, &refused) ||
		refused.Code != pb.Error_CODE_NO_TABLE {
		t.Errorf("dropped twice: %v", err)
	}
	again, err := m.Schema.CreateTable(ctx, "t", nil)
	if err != nil || again.Id == first.Id {
		t.Errorf("%v, %v after %v", again, err, first)
	}
	c, err := m.Observers.Catalogue(ctx)
	if err != nil || len(c.DroppedTables) != 1 || c.DroppedTables[0] != first.Id {
		t.Errorf("catalogue: %v, %v", c, err)
	}
	w.checkCatalogue(c.Version)
}

// TestDropTableInterrupted: whichever operation of a drop fails, a new table of that name, created
// after a restart, can be observed by the same observer.
func TestDropTableInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := 2; n < 24; n++ {
		w, m := newWorld(t)
		observe := func() error {
			table, err := m.Schema.CreateTable(ctx, "t", nil)
			if err != nil {
				return err
			}
			return register(ctx, m, []*pb.ObserverInfo{
				{Name: "o", Table: table.Id, TableName: "t", Column: []byte("c")},
			})
		}
		if err := observe(); err != nil {
			t.Fatal(err)
		}
		w.failAt, w.after = w.ops+n/2, n%2 == 1
		if err := dropTable(ctx, m, "t"); err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		w.failAt = 0
		if err := errors.Join(m.Observers.Sync(ctx), observe()); err != nil {
			t.Fatalf("died at operation %d, after it %v: %v", n/2, n%2 == 1, err)
		}
		c, err := m.Observers.Catalogue(ctx)
		if err != nil || len(c.Observers) != 1 {
			t.Fatalf("catalogue: %v, %v", c, err)
		}
		w.checkCatalogue(c.Version)
	}
}

// TestDropTableRepeated: whichever operation of a drop fails, repeating it leaves the table gone
// and every tablet notified; only then does the drop report that there is no such table.
func TestDropTableRepeated(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	died := true
	for n := 2; died; n++ {
		w, m := newWorld(t)
		if _, err := m.Schema.CreateTable(ctx, "t", []string{"k", "p"}); err != nil {
			t.Fatal(err)
		}
		w.failAt, w.after = w.ops+n/2, n%2 == 1
		err := dropTable(ctx, m, "t")
		if died = err != nil; died && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		w.failAt = 0
		if died {
			if err := dropTable(ctx, m, "t"); err != nil {
				t.Fatalf("died at operation %d, after it %v; again: %v", n/2, n%2 == 1, err)
			}
		} else if n < 14 {
			t.Fatalf("a table in three tablets was dropped in %d operations", n/2)
		}
		c, err := m.Observers.Catalogue(ctx)
		if err != nil || len(c.DroppedTables) != 1 {
			t.Fatalf("catalogue: %v, %v", c, err)
		}
		w.checkCatalogue(c.Version)
		var refused *txn.ServerError
		if err := dropTable(ctx, m, "t"); !errors.As(err, &refused) ||
			refused.Code != pb.Error_CODE_NO_TABLE {
			t.Errorf("once more: %v", err)
		}
	}
}

func (w *world) checkCatalogue(version uint64) {
	w.t.Helper()
	for id := range w.held {
		if id != cluster.MetaTablet && w.has[id] < version {
			w.t.Errorf("tablet %d has version %d of the catalogue, not %d", id, w.has[id], version)
		}
	}
}

// TestCatalogueRefusesContradictions: an observer has one column and one kind, and a column one
// observer until all nodes support several.
func TestCatalogueRefusesContradictions(t *testing.T) {
	ctx := context.Background()
	w, m := newWorld(t)
	info := func(name, column string, weak bool) *pb.ObserverInfo {
		return &pb.ObserverInfo{
			Name: name, Table: 16, TableName: "t", Column: []byte(column), Weak: weak,
		}
	}
	for range 2 { // the second time nothing changes
		if err := register(ctx, m, []*pb.ObserverInfo{info("a", "x", false),
			info("b", "y", true)}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := m.Observers.Catalogue(ctx)
	if err != nil || c.Version != 1 {
		t.Fatalf("%v, %v", c, err)
	}
	w.checkCatalogue(1)
	for want, o := range map[string]*pb.ObserverInfo{
		"other kind": info("a", "x", true), "observes": info("a", "z", false),
		"needs the cluster to be at version 6": info("c", "x", false),
	} {
		if err := register(ctx, m, []*pb.ObserverInfo{o}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", o, err)
		}
	}
}

// TestDDLRespectsContext: a change waits for the one under way no longer than its context allows,
// and does not affect others that still wait.
func TestDDLRespectsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, m := newWorld(t)
	stuck, release := make(chan struct{}), make(chan struct{})
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse,
		error) {
		if req.GetSplit() != nil { // of the first CreateTable
			close(stuck)
			<-release
		}
		return w.send(ctx, tablet, req)
	}
	made := make(chan error, 1)
	go func() { _, err := m.Schema.CreateTable(ctx, "t", []string{"k"}); made <- err }()
	<-stuck
	ended, end := context.WithCancel(ctx)
	end()
	for name, change := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := m.Schema.CreateTable(ctx, "u", nil)
			return err
		},
		"drop":     func(ctx context.Context) error { return dropTable(ctx, m, "u") },
		"split":    func(ctx context.Context) error { return m.Schema.SplitTablet(ctx, "u", "x") },
		"splitAt":  func(ctx context.Context) error { return m.Schema.SplitAt(ctx, 16, "x") },
		"sync":     m.Observers.Sync,
		"register": func(ctx context.Context) error { return register(ctx, m, nil) },
		"control": func(ctx context.Context) error {
			_, err := m.Observers.ControlObserver(ctx, &pb.ControlObserverRequest{})
			return err
		},
		"forget": func(ctx context.Context) error { return m.Observers.ForgetObserver(ctx, "o") },
	} {
		if err := change(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(release)
	if err := errors.Join(<-made, m.Observers.Sync(ctx)); err != nil {
		t.Error(err)
	}
}

// TestReportKeepsTheHigherEpoch: a late report of an older descriptor changes nothing.
func TestReportKeepsTheHigherEpoch(t *testing.T) {
	ctx := context.Background()
	w, m := newWorld(t)
	for _, epoch := range []uint64{2, 5, 3} {
		d := &pb.TabletDescriptor{TabletId: 9, Epoch: epoch, StartTable: 20, EndUnbounded: true}
		if err := m.Tablets.Report(ctx, d); err != nil {
			t.Fatal(err)
		}
		w.router.Update(d)
	}
	all, err := m.Tablets.Tablets(ctx)
	if err != nil || len(all) != 1 || all[0].Epoch != 5 {
		t.Errorf("%v, %v", all, err)
	}
	if got := w.router.Locate(25, "x", 1); len(got) != 1 || got[0].Epoch != 5 {
		t.Errorf("the router reports %v", got)
	}
}

// TestConcurrentDDL: concurrent creations of the same and of different tables, through several
// Metas, agree.
func TestConcurrentDDL(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w, first := newWorld(t)
	metas := []*Meta{first, New(w.send, w.router, nil), New(w.send, w.router, nil)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]uint32{}
	for i := range 12 {
		wg.Go(func() {
			name := fmt.Sprint("t", i%4)
			table, err := metas[i%len(metas)].Schema.CreateTable(ctx, name, nil)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if id, ok := ids[name]; ok && id != table.Id {
				t.Errorf("table %s has ids %d and %d", name, id, table.Id)
			}
			ids[name] = table.Id
		})
	}
	wg.Wait()
	w.checkTable(ctx, first, "after", 12)
}

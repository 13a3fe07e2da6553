package node_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/node"
)

// noteEnds declares the table of event, whose cells expire at the age, and an observer that writes gone
// in each row whose event has ended.
func noteEnds(event, gone percolator.Column, age time.Duration) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: event.Table, Expiry: percolator.Expiry{After: age}})
		r.Table(percolator.TableSpec{Name: gone.Table})
		r.Strong(gone.Table, event, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			_, ok, err := tx.Get(ctx, n.Row, event)
			if err == nil && !ok {
				tx.Set(n.Row, gone, nil)
			}
			return err
		})
	}
}

// TestExpiryFailOver: cells expire although the node that leads meta dies during their deletion.
// Their observer sees each as a deletion, a snapshot still reads them, and a row that is rewritten
// repeatedly stays.
func TestExpiryFailOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	const rows, age = 4000, 5 * time.Second
	event := percolator.Column{Table: "events", Name: "event"}
	gone := percolator.Column{Table: "ends", Name: "gone"}
	r := three(ctx, t, 1, func(_ int, c *node.Config) { c.Observers = noteEnds(event, gone, age) })
	r.lead(ctx, cluster.MetaTablet, 2)
	db := r.nodes[0].DB()
	write := func(names ...string) error {
		return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for _, name := range names {
				tx.Set(name, event, []byte("x"))
			}
			return nil
		})
	}
	for i := 0; i < rows; i += 500 {
		var names []string
		for j := range 500 {
			names = append(names, fmt.Sprintf("r%04d", i+j))
		}
		awaitTrue(ctx, t, "the rows are written", func() bool {
			err := write(names...)
			if err != nil && !errors.Is(err, percolator.ErrUnavailable) && !errors.Is(err, percolator.ErrCommitUnknown) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	before, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }()
	// The row that stays is not counted: on a loaded machine it may not be written for so long that it
	// expires, and ends too.
	count := func(r percolator.Reader, col percolator.Column) (n int, err error) {
		for c, e := range r.Scan(ctx, percolator.Rows(col.Table).KeysOnly(), col) {
			if e != nil {
				return n, e
			}
			if c.Row != "stays" {
				n++
			}
		}
		return n, nil
	}
	var written time.Time // before the last commit of that row
	rewrite := func() error {
		began := time.Now()
		err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			_, ok, err := tx.Get(ctx, "stays", event)
			if err == nil && !ok && time.Since(written) < age {
				t.Errorf("EXPIRED-WRONGLY: a row that was written %v ago has expired", time.Since(written))
			}
			tx.Set("stays", event, []byte("x"))
			return err
		})
		if err == nil {
			written = began
		}
		return err
	}
	seen, err := count(before, event)
	if err != nil || seen == 0 { // the first may have expired already on a loaded machine
		t.Fatalf("%d rows in the snapshot: %v", seen, err)
	}
	crashed := false
	var left, ends int
	defer func() {
		if t.Failed() {
			t.Logf("%d rows are left, %d have ended", left, ends)
		}
	}()
	awaitTrue(ctx, t, "all but the row that is written anew has expired", func() bool {
		if rewrite() != nil {
			return false
		}
		s, err := db.Snapshot(ctx)
		if err != nil {
			return false
		}
		defer func() { _ = s.Close() }()
		left, err = count(s, event)
		if err != nil {
			return false
		}
		if left < rows && !crashed {
			crashed = true
			r.crash(2)
		}
		ends, err = count(s, gone)
		return err == nil && left == 0 && ends == rows
	})
	if again, err := count(before, event); err != nil || again != seen {
		t.Errorf("SNAPSHOT-CHANGED: it had %d rows, and has %d: %v", seen, again, err)
	}
}

// TestExpiryIsChanged: CreateTable does not change the expiry of an existing table, SetExpiry
// replaces it, and both refuse invalid ones.
func TestExpiryIsChanged(t *testing.T) {
	t.Parallel()
	n := open(t, t.TempDir(), nil)
	db, ctx := n.DB(), t.Context()
	first := percolator.Expiry{After: time.Hour, Columns: map[string]time.Duration{"ip": 90 * time.Minute, "id": 0}}
	expect := func(want percolator.Expiry) {
		t.Helper()
		tables, err := db.Tables(ctx)
		if err != nil || len(tables) != 1 || !reflect.DeepEqual(tables[0].Expiry, want) {
			t.Errorf("the tables are %+v (%v), want the expiry %+v", tables, err, want)
		}
	}
	for _, spec := range []percolator.TableSpec{
		{Name: "events", Expiry: first}, {Name: "events"}, {Name: "events", Expiry: percolator.Expiry{After: time.Minute}},
	} {
		if err := db.CreateTable(ctx, spec); err != nil {
			t.Fatal(err)
		}
		expect(first)
	}
	second := percolator.Expiry{Columns: map[string]time.Duration{"": 30 * 24 * time.Hour}}
	for _, e := range []percolator.Expiry{second, {}} {
		if err := db.SetExpiry(ctx, "events", e); err != nil {
			t.Fatal(err)
		}
		expect(e)
	}
	for _, c := range []struct{ err, want error }{
		{db.SetExpiry(ctx, "none", second), percolator.ErrNoTable},
		{db.SetExpiry(ctx, "events", percolator.Expiry{After: time.Millisecond}), percolator.ErrInvalid},
		{
			db.CreateTable(ctx, percolator.TableSpec{Name: "t", Expiry: percolator.Expiry{After: -time.Hour}}),
			percolator.ErrInvalid,
		},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
	expect(percolator.Expiry{})
}

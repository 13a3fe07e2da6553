package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// splitAt returns a request for a table with n split keys.
func splitAt(name string, n int) *pb.CreateTableRequest {
	req := &pb.CreateTableRequest{Name: name}
	for i := range n {
		req.SplitKeys = append(req.SplitKeys, fmt.Appendf(nil, "k%04d", i))
	}
	return req
}

// slow makes every split take d.
func (w *world) slow(d time.Duration) {
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
		if req.GetSplit() != nil {
			if err := txn.Sleep(ctx, d); err != nil {
				return nil, err
			}
		}
		return w.send(ctx, tablet, req)
	}
}

// TestCreateTableStep: a step of a creation ends while the caller waits; the table then exists with
// the pending keys on record. The same request to another node continues with them, and no split is
// made twice.
func TestCreateTableStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := newWorld(t)
		w.slow(time.Second)
		other := New(func(ctx context.Context, tablet uint64,
			req *pb.TabletRequest) (*pb.TabletResponse, error) {
			return w.via(ctx, tablet, req)
		}, w.router, nil)
		req := splitAt("t", 100)
		pending := 100
		for step := 0; pending > 0; step++ {
			began := time.Now()
			table, err := []*Meta{m, other}[step%2].Schema.CreateTableStep(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 2*createStep {
				t.Errorf("step %d has taken %v", step, took)
			}
			left := wire.PendingSplits(table, req)
			if left >= pending || left+len(table.SplitKeys) != 100 {
				t.Fatalf("step %d: %d keys are pending after %d, and %d split", step, left, pending,
					len(table.SplitKeys))
			}
			pending = left
			w.checkTable(t.Context(), m, "step", step)
		}
		if n := len(w.held); n != 2+100 {
			t.Errorf("%d tablets", n)
		}
		// A program that creates its table when it starts does not wait for others' splits.
		_, err := m.Schema.CreateTableStep(t.Context(), splitAt("t", 200))
		if err != nil {
			t.Fatal(err)
		}
		before := len(w.held)
		if _, err := m.Schema.CreateTable(t.Context(), "t", nil); err != nil || len(w.held) != before {
			t.Errorf("%v, and %d tablets more", err, len(w.held)-before)
		}
	})
}

// TestCreateTableStepFails: a step that has made splits succeeds, so that its caller continues; one
// that has made none fails.
func TestCreateTableStepFails(t *testing.T) {
	w, m := newWorld(t)
	var splits atomic.Int32 // several run concurrently
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
		if req.GetSplit() != nil && splits.Add(1) > 5 {
			return nil, errCrash
		}
		return w.send(ctx, tablet, req)
	}
	req := splitAt("t", 20)
	table, err := m.Schema.CreateTableStep(t.Context(), req)
	if err != nil || len(table.SplitKeys) == 0 || wire.PendingSplits(table, req) == 0 {
		t.Fatalf("%v, %v", table, err)
	}
	if _, err := m.Schema.CreateTableStep(t.Context(), req); !errors.Is(err, errCrash) {
		t.Errorf("without a tablet: %v", err)
	}
	w.via = w.send
	if err := dropTable(t.Context(), m, "t"); err != nil {
		t.Fatal(err)
	}
	if left, err := m.Schema.Unfinished(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("unfinished after the drop: %v, %v", left, err)
	}
}

// TestPendingSplitsCount: pending keys count as tablets, so a begun creation can be finished, and
// no other takes their places.
func TestPendingSplitsCount(t *testing.T) {
	w, m := newWorld(t)
	ctx := t.Context()
	if _, err := m.Policy.Found(ctx, &pb.Policy{SplitMaxTablets: proto.Uint64(21)}); err != nil {
		t.Fatal(err)
	}
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
		if len(req.GetSplit().GetRow()) > 0 {
			return nil, errCrash
		}
		return w.send(ctx, tablet, req)
	}
	if _, err := m.Schema.CreateTableStep(ctx, splitAt("t", 20)); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	w.via = w.send
	_, err := m.Schema.CreateTable(ctx, "u", []string{"k"})
	if err == nil || !strings.Contains(err.Error(), "there are 20 tablets") {
		t.Errorf("another table: %v", err)
	}
	if left, err := m.Schema.Unfinished(ctx); err != nil || len(left) != 1 || left[0].Name != "t" {
		t.Errorf("unfinished: %v, %v", left, err)
	}
	if _, err := m.Schema.CreateTable(ctx, "t", keysOf(splitAt("t", 20).SplitKeys)); err != nil {
		t.Errorf("to finish it: %v", err)
	}
}

// TestHalvings: the groups contain all keys once, and no two neighbours in one group.
func TestHalvings(t *testing.T) {
	for n := range 40 {
		keys := keysOf(splitAt("t", n).SplitKeys)
		var all []string
		for _, group := range halvings(keys) {
			for i := 1; i < len(group); i++ {
				between := func(k string) bool { return group[i-1] < k && k < group[i] }
				if !slices.ContainsFunc(all, between) {
					t.Errorf("%d keys: %s and %s are in one tablet", n, group[i-1], group[i])
				}
			}
			all = append(all, group...)
		}
		slices.Sort(all)
		if !slices.Equal(all, keys) {
			t.Errorf("%d keys: %v", n, all)
		}
	}
}

// TestClientBounds: a client creates at most as many tables and tablets as the policy allows it,
// independent of others, and drops free places. A caller that is not a bounded client is not
// limited. Catches BROKEN=client_unbounded.
func TestClientBounds(t *testing.T) {
	_, m := newWorld(t)
	ctx := t.Context()
	if _, err := m.Policy.Found(ctx, &pb.Policy{
		ClientMaxTables: proto.Uint64(2), ClientMaxTablets: proto.Uint64(5),
	}); err != nil {
		t.Fatal(err)
	}
	create := func(owner, name string, splits int) error {
		req := splitAt(name, splits)
		req.Owner = owner
		_, err := m.Schema.CreateTableStep(ctx, req)
		return err
	}
	for _, test := range []struct {
		owner, name string
		splits      int
		refused     string // empty: it is allowed
	}{
		{"", "operators", 20, ""},
		{"amy", "wide", 5, "of at most 5; the request needs 6 more"},
		{"amy", "a", 1, ""},
		{"amy", "b", 1, ""},
		{"amy", "c", 0, "tables of at most 2"},
		{"amy", "a", 1, ""}, // it already exists
		{"amy", "a", 2, ""},
		{"amy", "a", 3, "of at most 5; the request needs 1 more"},
		{"bob", "c", 1, ""},
		{"bob", "a", 4, "only its creator"},
		{"bob", "a", 2, ""},
		{"bob", "operators", 21, "only its creator"},
		{"", "a", 6, ""},
	} {
		err := create(test.owner, test.name, test.splits)
		if (err == nil) != (test.refused == "") ||
			err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("BOUNDS: %q creates %s with %d splits: %v", test.owner, test.name, test.splits, err)
		}
	}
	if err := dropTable(ctx, m, "b"); err != nil {
		t.Fatal(err)
	}
	if err := create("amy", "c", 1); err != nil {
		t.Errorf("bob's table, as it is: %v", err)
	}
	// The operator has split amy's table, which still counts as amy's.
	if err := create("amy", "d", 0); err == nil || !strings.Contains(err.Error(), "have 7 tablets") {
		t.Errorf("after a drop: %v", err)
	}
}

package meta

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestPolicyIsTheClustersOwn: the first writer wins, later ones read it; a change has a new
// version, and an invalid one is refused.
func TestPolicyIsTheClustersOwn(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	if _, err := m.Policy.Set(ctx, &pb.Policy{Replicas: proto.Uint64(5)}); err == nil {
		t.Error("a change of a policy that there is not")
	}
	if p, err := m.Policy.Read(ctx); err != nil || p.Version != 0 || p.GetReplicas() != 3 {
		t.Errorf("no policy yet: %v, %v", p, err)
	}
	for _, replicas := range []uint64{5, 1} {
		p, err := m.Policy.Found(ctx, &pb.Policy{Replicas: proto.Uint64(replicas)})
		if err != nil || p.GetReplicas() != 5 || p.Version != 1 || p.GetSplitMaxTablets() != 1024 {
			t.Errorf("founded with %d: %v, %v", replicas, p, err)
		}
	}
	p, err := m.Policy.Set(ctx, &pb.Policy{
		HistoryMs: proto.Uint64(3_600_000), MaxHoldMs: proto.Uint64(7_200_000),
	})
	if err != nil || p.Version != 2 || p.GetReplicas() != 5 || p.GetHistoryMs() != 3_600_000 {
		t.Errorf("changed: %v, %v", p, err)
	}
	for _, bad := range []*pb.Policy{
		{Replicas: proto.Uint64(2)}, {Replicas: proto.Uint64(7)}, {HistoryMs: proto.Uint64(10)},
		{SplitMaxTablets: proto.Uint64(0)},
		{HistoryMs: proto.Uint64(8_000_000)}, // more than snapshots may hold
	} {
		var refused *txn.ServerError
		if _, err := m.Policy.Set(ctx, bad); !errors.As(err, &refused) ||
			refused.Code != pb.Error_CODE_INVALID {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if again, err := m.Policy.Read(ctx); err != nil || !proto.Equal(again, p) {
		t.Errorf("read again: %v, %v; it was %v", again, err, p)
	}
}

// TestTabletsAreBounded: a request for more tablets than the policy allows is refused before
// anything is created, with the bound in the error; a repeated request for an existing table
// succeeds.
func TestTabletsAreBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, m := newWorld(t)
	if _, err := m.Policy.Found(ctx, &pb.Policy{SplitMaxTablets: proto.Uint64(4)}); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		var e *txn.ServerError
		if !errors.As(err, &e) || e.Code != pb.Error_CODE_TOO_LARGE ||
			!strings.Contains(e.Message, "tablets of at most 4") {
			t.Errorf("%s: %v", what, err)
		}
	}
	create := func(name string, keys ...string) error {
		_, err := m.Schema.CreateTable(ctx, name, keys)
		return err
	}
	refused("a table of five tablets", create("wide", "a", "b", "c", "d"))
	if err := create("t", "k", "p"); err != nil {
		t.Fatal(err)
	}
	if err := m.Schema.SplitTablet(ctx, "t", "q"); err != nil {
		t.Fatal(err)
	}
	before := len(w.held)
	refused("a split", m.Schema.SplitTablet(ctx, "t", "r"))
	refused("a table", create("u"))
	refused("split keys", create("t", "k", "r"))
	table, err := m.Schema.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	refused("a split by size", m.Schema.SplitAt(ctx, mvcc.TableID(table.Id), "r"))
	for _, again := range []error{create("t", "k", "p"), m.Schema.SplitTablet(ctx, "t", "q")} {
		if again != nil {
			t.Errorf("what is there: %v", again)
		}
	}
	if len(w.held) != before {
		t.Errorf("%d tablets, and there were %d", len(w.held), before)
	}
	if _, err := m.Policy.Set(ctx, &pb.Policy{SplitMaxTablets: proto.Uint64(5)}); err != nil {
		t.Fatal(err)
	}
	if err := create("u"); err != nil {
		t.Errorf("with room for one more: %v", err)
	}
	if err := m.Schema.SplitTablet(ctx, "u", "x"); err == nil ||
		!strings.Contains(err.Error(), "tablets of at most 5") {
		t.Errorf("beyond the new bound: %v", err)
	}
}

// TestDroppedTablesDoNotCount: dropped tables free their tablets at once, but the number of those
// waiting to be merged is bounded by the same setting.
func TestDroppedTablesDoNotCount(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	if _, err := m.Policy.Found(ctx, &pb.Policy{SplitMaxTablets: proto.Uint64(4)}); err != nil {
		t.Fatal(err)
	}
	var refused *txn.ServerError
	for round := range 3 {
		table, err := m.Schema.CreateTable(ctx, "t", []string{"a", "b"})
		if round == 2 {
			if !errors.As(err, &refused) || refused.Code != pb.Error_CODE_OVERLOADED {
				t.Fatalf("six tablets of dropped tables, and another table: %v", err)
			}
			break
		}
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := m.Schema.DropTable(ctx, "t", table.Id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnused: a tablet is unused if it can hold only rows of dropped tables.
func TestUnused(t *testing.T) {
	c := &pb.Catalogue{DroppedTables: []uint32{20, 23}, Gone: []*pb.TableRange{{First: 21, Last: 22}}}
	for _, x := range []struct {
		from, to uint32
		end      string
		want     bool
	}{
		{20, 21, "", true}, {20, 20, "k", true}, {20, 24, "", true}, {20, 24, "a", false},
		{19, 21, "", false}, {22, 23, "k", true}, {24, 25, "", false},
	} {
		d := &pb.TabletDescriptor{StartTable: x.from, EndTable: x.to, EndRow: []byte(x.end)}
		if got := Unused(c, d); got != x.want {
			t.Errorf("from table %d to table %d row %q: %t", x.from, x.to, x.end, got)
		}
	}
	if Unused(c, &pb.TabletDescriptor{StartTable: 20, EndUnbounded: true}) {
		t.Error("the last tablet, which has the timers, is unused")
	}
}

package meta

import (
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestExpiryWaitsForAllNodes: while some nodes may run a build that ignores expiry, no table can
// have one, and a refused table is not created.
func TestExpiryWaitsForAllNodes(t *testing.T) {
	_, m := newWorld(t)
	ctx := t.Context()
	expiry := &pb.TableExpiry{AfterMs: 60_000}
	before := version.Agreed{Minimum: version.Expiry.Since - 1, Active: version.Expiry.Since - 1}
	if _, err := m.Policy.Found(ctx, &pb.Policy{Agreed: wire.AgreedPB(before)}); err != nil {
		t.Fatal(err)
	}
	old, err := m.Schema.CreateTable(ctx, "old", nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"SetExpiry":   m.Schema.SetExpiry(ctx, "old", old.Id, expiry),
		"CreateTable": second(m.Schema.CreateExpiring(ctx, "new", nil, expiry)),
	} {
		if err == nil || !strings.Contains(err.Error(), "cluster finalize") {
			t.Errorf("UNAGREED-EXPIRY: %s: %v", what, err)
		}
	}
	if tables, err := m.Schema.Tables(ctx); err != nil || len(tables) != 1 || tables[0].Expiry != nil {
		t.Errorf("UNAGREED-EXPIRY: the tables are %v (%v)", tables, err)
	}
	after := version.Agreed{Minimum: version.Expiry.Since, Active: version.Expiry.Since}
	if _, err := m.Policy.Agree(ctx, after); err != nil {
		t.Fatal(err)
	}
	if err := m.Schema.SetExpiry(ctx, "old", old.Id, expiry); err != nil {
		t.Fatal(err)
	}
	if err := m.Schema.SetExpiry(ctx, "old", old.Id+1, nil); err == nil {
		t.Error("the expiry of a table of another id was changed")
	}
	if now, err := m.Schema.CreateExpiring(ctx, "old", nil, &pb.TableExpiry{AfterMs: 1000}); err != nil ||
		now.Expiry.GetAfterMs() != 60_000 {
		t.Errorf("created again: %v, %v", now, err)
	}
}

// TestExpiryOutOfBounds: invalid ages and columns are rejected.
func TestExpiryOutOfBounds(t *testing.T) {
	column := func(names ...string) *pb.TableExpiry {
		e := &pb.TableExpiry{}
		for _, name := range names {
			e.Columns = append(e.Columns, &pb.ColumnExpiry{Column: []byte(name), AfterMs: 5000})
		}
		return e
	}
	for _, e := range []*pb.TableExpiry{
		{AfterMs: 999}, {AfterMs: 1 << 63}, column("b", "a"), column("a", "a"), column(strings.Repeat("x", 1025)),
		column(strings.Split(strings.Repeat("x", 101), "")...),
	} {
		if checkExpiry(e) == nil {
			t.Errorf("%.100v is allowed", e)
		}
	}
	if err := checkExpiry(column("", "a")); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestGrantsAreOfThePolicy: grants increase the policy's version and change nothing else of it, are
// deleted with their table and bounded; a change of the policy keeps them.
func TestGrantsAreOfThePolicy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	tables := []*pb.Table{{Id: 16, Name: "t"}, {Id: 17, Name: "u"}}
	refused := func(what string, g *pb.Grant) {
		t.Helper()
		var e *txn.ServerError
		if _, err := m.Policy.SetGrant(ctx, g, tables); !errors.As(err, &e) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ann := &pb.Grant{Table: 16, TableName: "t", Name: "ann", Role: "reader"}
	refused("before there is a policy", ann)
	if _, err := m.Policy.Found(ctx, &pb.Policy{Replicas: proto.Uint64(5)}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one changes nothing
		p, err := m.Policy.SetGrant(ctx, ann, tables)
		if err != nil || p.Version != 2 || len(p.Grants) != 1 || p.GetReplicas() != 5 {
			t.Errorf("%v, %v", p, err)
		}
	}
	more := proto.CloneOf(ann)
	more.Role = "writer"
	if p, err := m.Policy.SetGrant(ctx, more, tables); err != nil || p.Grants[0].Role != "writer" ||
		len(p.Grants) != 1 {
		t.Errorf("%v, %v", p, err)
	}
	p, err := m.Policy.Set(ctx, &pb.Policy{
		Replicas: proto.Uint64(3), Grants: []*pb.Grant{{Table: 16, TableName: "t", Name: "eve"}},
	})
	if err != nil || len(p.Grants) != 1 || p.Grants[0].Name != "ann" || p.GetReplicas() != 3 {
		t.Errorf("GRANTS-CHANGED: by a change of the policy: %v, %v", p, err)
	}
	refused("an operator's", &pb.Grant{Table: 16, Name: "bob", Role: "operator"})
	refused("no name", &pb.Grant{Table: 16, Role: "reader"})
	refused("escapes", &pb.Grant{Table: 16, Name: "\x1b[2J", Role: "reader"})
	refused("one that is not there", &pb.Grant{Table: 16, TableName: "t", Name: "bob"})
	u := &pb.Grant{Table: 17, TableName: "u", Name: "ann", Role: "reader"}
	if p, err := m.Policy.SetGrant(ctx, u, tables[1:]); err != nil || len(p.Grants) != 1 ||
		p.Grants[0].Table != 17 {
		t.Errorf("its table is gone: %v, %v", p, err)
	}
	if p, err := m.Policy.SetGrant(ctx, &pb.Grant{Table: 17, TableName: "u", Name: "ann"},
		tables); err != nil || len(p.Grants) != 0 {
		t.Errorf("taken back: %v, %v", p, err)
	}
	full := make([]*pb.Grant, maxGrants)
	for i := range full {
		full[i] = &pb.Grant{Table: 16, TableName: "t", Name: fmt.Sprintf("n%04d", i), Role: "reader"}
	}
	_, err = update(ctx, m.Policy.records, rowPolicy,
		func(have *pb.Policy) (*pb.Policy, []change, error) {
			have.Grants = full
			return have, nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	refused("too many", ann)
}

// TestGrantsGoWithTheirTable: a drop removes only its table's grants, and those that an earlier
// build left behind are not listed.
func TestGrantsGoWithTheirTable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	if _, err := m.Policy.Found(ctx, &pb.Policy{Replicas: proto.Uint64(5)}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t", "u"} {
		if _, err := m.Schema.CreateTable(ctx, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	tables, err := m.Schema.Tables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range tables {
		for _, name := range []string{"ann", "bob"} {
			g := &pb.Grant{Table: of.Id, TableName: of.Name, Name: name, Role: "reader"}
			if _, err := m.Policy.SetGrant(ctx, g, tables); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // the second one changes nothing
		if err := m.Schema.DropTable(ctx, "t", tables[0].Id); err != nil {
			t.Fatal(err)
		}
	}
	p, err := m.Policy.Read(ctx)
	if err != nil || len(p.Grants) != 2 || p.Grants[0].TableName != "u" || p.Version != 6 ||
		p.GetReplicas() != 5 {
		t.Errorf("GRANTS-STAY: after the drop: %v, %v", p, err)
	}
	left := append(slices.Clone(p.Grants), &pb.Grant{Table: tables[0].Id, TableName: "t", Name: "ann"})
	if living := LivingGrants(left, tables[1:]); len(living) != 2 || living[1].TableName != "u" {
		t.Errorf("GRANTS-STAY: of a table that is gone: %v", living)
	}
}

package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/node"
)

// TestGrants: an operator lets one client write a table and another read it; all others are
// refused from then on, as are both beyond their grant, until it is taken back.
func TestGrants(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	n := open(t, "", func(cfg *node.Config) {
		cfg.Insecure, cfg.Certs = false, dir
		cfg.Listen, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0"
		cfg.Observers = func(r *percolator.Registry) { // which makes the table
			r.Strong("watches", percolator.Column{Table: "t", Name: "seen"},
				func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
		}
	})
	dial := func(s certs.Source) *percolator.DB {
		db, err := percolator.Dial(t.Context(), []string{n.Addr()},
			percolator.ClientConfig{CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	client := func(name string) *percolator.DB {
		own := t.TempDir()
		if _, err := certs.CreateClient(certs.Request{Dir: own, CA: dir, Name: name,
			Role: certs.Writer}); err != nil {
			t.Fatal(err)
		}
		return dial(certs.ClientSource(own))
	}
	operator, source := dial(certs.ClientSource(dir)), certs.ClientSource(dir)
	c, err := rpc.Dial(t.Context(), []string{n.Addr()},
		rpc.ClientConfig{CertFile: source.Cert, KeyFile: source.Key, CAFile: source.CA})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ann, bob, eve := client("ann"), client("bob"), client("eve")
	if err := operator.CreateTable(t.Context(), percolator.TableSpec{Name: "u"}); err != nil {
		t.Fatal(err)
	}
	grant := func(name, role string) {
		t.Helper()
		if _, err := pb.NewAdminClient(c.AdminConn()).SetGrant(t.Context(),
			&pb.SetGrantRequest{Table: "t", Name: name, Role: role}); err != nil {
			t.Fatal(err)
		}
	}
	col := percolator.Column{Table: "t", Name: "c"}
	check := func(who string, db *percolator.DB, mayRead, mayWrite bool) {
		t.Helper()
		s, err := db.Snapshot(t.Context())
		if err == nil {
			_, _, err = s.Get(t.Context(), "r", col)
			_ = s.Close()
		}
		// Through another table, whose primary it has: each operation is looked at.
		also := db.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("a"+who, percolator.Column{Table: "u", Name: "c"}, []byte("v"))
			tx.Set("r", col, []byte("v"))
			return nil
		})
		for what, c := range map[string]struct {
			err error
			may bool
		}{"read": {err, mayRead}, "write": {also, mayWrite}} {
			if (c.err == nil) != c.may || !c.may && !errors.Is(c.err, percolator.ErrPermission) {
				t.Errorf("GRANT-IGNORED: %s of %s: %v", what, who, c.err)
			}
		}
	}
	asked := 0
	ask := func(question string) (int, string) {
		asked++
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+n.HTTPAddr()+"/api/v1/"+question, nil)
		if err != nil {
			t.Fatal(err)
		}
		secret, hash := certs.NewToken()
		_, err = pb.NewAdminClient(c.AdminConn()).CreateToken(t.Context(), &pb.CreateTokenRequest{
			Name: fmt.Sprint("token", asked), Role: "reader", TtlMs: 100_000, Hash: hash,
		})
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	// shown requires that the console shows rows of the table, or that it does not.
	shown := func(want bool) {
		t.Helper()
		code, _ := ask("rows?table=t")
		parked, _ := ask("parked?observer=watches")
		_, contended := ask("contended")
		if (code == 200) != want || (parked == 200) != want || strings.Contains(contended, `"hot"`) != want {
			t.Errorf("GRANT-IGNORED: the console's rows: %d, parked: %d; contended: %s", code, parked,
				contended)
		}
	}
	conflict(t, operator, "hot", col)
	check("eve", eve, true, true)
	shown(true)
	grant("ann", "writer")
	grant("bob", "reader")
	check("ann", ann, true, true)
	check("bob", bob, true, false)
	check("eve", eve, false, false)
	check("the operator", operator, true, true)
	shown(false)
	for who, db := range map[string]*percolator.DB{"eve": eve, "bob": bob, "the operator": operator} {
		tables, err := db.Tables(t.Context())
		if err != nil || (len(tables) == 2) != (who != "eve") {
			t.Errorf("GRANT-TOLD: to %s: %v, %v", who, tables, err)
		}
	}
	// A lock in a table for all, whose primary never came to one for others alone.
	orphan(t, c, "t", percolator.Column{Table: "u", Name: "c"})
	reads(t, eve, "orphan", percolator.Column{Table: "u", Name: "c"})
	// What would be missing from a backup is said, not left out.
	for _, who := range []string{"the operator", "eve"} {
		db := map[string]*percolator.DB{"eve": eve, "the operator": operator}[who]
		l, err := backup.Open(t.Context(), t.TempDir())
		if err == nil {
			_, err = backup.Create(t.Context(), handle.Client(db), l, backup.CreateOptions{})
		}
		if (err == nil) != (who != "eve") {
			t.Errorf("BACKUP-INCOMPLETE: of %s: %v", who, err)
		}
	}
	fresh := client("gus").CreateTable(t.Context(), percolator.TableSpec{Name: "t"})
	if !errors.Is(fresh, percolator.ErrPermission) {
		t.Errorf("GRANT-TOLD: a table that is hidden is made anew: %v", fresh)
	}
	grant("ann", "")
	check("ann, afterwards", ann, false, false)
	grant("bob", "")
	check("eve, afterwards", eve, true, true)
}

// orphan leaves a lock that has just expired on the row orphan of a column. Its primary, in
// another table, was never prewritten.
func orphan(t *testing.T, c *rpc.Client, primary string, col percolator.Column) {
	t.Helper()
	ids := map[string]uint32{}
	tables, err := c.Tables(t.Context())
	for _, one := range tables {
		ids[one.Name] = one.Id
	}
	if err != nil {
		t.Fatal(err)
	}
	start, _, err := c.Timestamps(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	tablets, err := c.Locate(t.Context(), mvcc.TableID(ids[col.Table]), "orphan", 1)
	if err != nil || len(tablets) != 1 {
		t.Fatal(tablets, err)
	}
	cell := func(table string) *pb.Cell {
		return &pb.Cell{Table: ids[table], Row: []byte("orphan"), Column: []byte(col.Name)}
	}
	resp, err := c.Send(t.Context(), tablets[0], &pb.TabletRequest{
		TabletId: tablets[0].TabletId, Epoch: tablets[0].Epoch,
		Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: cell(primary), Expiry: uint64(start) + 1,
			Writes: []*pb.CellWrite{{
				Cell: cell(col.Table), Kind: pb.Kind_KIND_PUT, Value: []byte("v"),
			}},
		}},
	})
	if err != nil || resp.GetError() != nil {
		t.Fatal(resp, err)
	}
}

// reads requires that the row is read, and has nothing in the column.
func reads(t *testing.T, db *percolator.DB, row string, col percolator.Column) {
	t.Helper()
	s, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if v, found, err := s.Get(ctx, row, col); found || err != nil {
		t.Errorf("LOCK-STAYS: %q, %v", v, err)
	}
}

// conflict has a transaction come too late for a row.
func conflict(t *testing.T, db *percolator.DB, row string, col percolator.Column) {
	t.Helper()
	set := func(tx *percolator.Tx) error {
		tx.Set(row, col, []byte("v"))
		_, err := tx.Commit(t.Context())
		return err
	}
	late, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := set(first); err != nil {
		t.Fatal(err)
	}
	if err := set(late); !errors.Is(err, percolator.ErrConflict) {
		t.Fatalf("no conflict: %v", err)
	}
}

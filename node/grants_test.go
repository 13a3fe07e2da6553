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

// granting is a node with certificates, with the tables t and u, whose operator grants and revokes
// access to t.
type granting struct {
	*testing.T
	node     *node.Node
	certs    string // the folder of the authority and of the operator
	rpc      *rpc.Client
	operator *percolator.DB
	asked    int // queries of the console
}

// granted is a column of the table with grants, and free one of the table without.
var (
	granted = percolator.Column{Table: "t", Name: "c"}
	free    = percolator.Column{Table: "u", Name: "c"}
)

func newGranting(t *testing.T) *granting {
	g := &granting{T: t, certs: certstest.Folder(t, "127.0.0.1")}
	g.node = open(t, "", func(cfg *node.Config) {
		cfg.Insecure, cfg.Certs = false, g.certs
		cfg.Listen, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0"
		cfg.Observers = func(r *percolator.Registry) { // which creates the table
			r.Strong("watches", percolator.Column{Table: "t", Name: "seen"},
				func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
		}
	})
	source := certs.ClientSource(g.certs)
	g.operator = g.dial(source)
	var err error
	g.rpc, err = rpc.Dial(t.Context(), []string{g.node.Addr()},
		rpc.ClientConfig{CertFile: source.Cert, KeyFile: source.Key, CAFile: source.CA})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.rpc.Close() })
	if err := g.operator.CreateTable(t.Context(), percolator.TableSpec{Name: "u"}); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *granting) dial(s certs.Source) *percolator.DB {
	g.Helper()
	db, err := percolator.Dial(g.Context(), []string{g.node.Addr()},
		percolator.ClientConfig{CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA})
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = db.Close() })
	return db
}

// client returns the database of a client with a certificate of that name.
func (g *granting) client(name string) *percolator.DB {
	g.Helper()
	own := g.TempDir()
	if _, err := certs.CreateClient(certs.Request{Dir: own, CA: g.certs, Name: name,
		Role: certs.Writer}); err != nil {
		g.Fatal(err)
	}
	return g.dial(certs.ClientSource(own))
}

// grant gives a client a role in the table; an empty role revokes the grant.
func (g *granting) grant(name, role string) {
	g.Helper()
	if _, err := pb.NewAdminClient(g.rpc.AdminConn()).SetGrant(g.Context(),
		&pb.SetGrantRequest{Table: "t", Name: name, Role: role}); err != nil {
		g.Fatal(err)
	}
}

// may fails the test unless the client can read and write the table exactly as given, and is
// otherwise refused.
func (g *granting) may(who string, db *percolator.DB, mayRead, mayWrite bool) {
	g.Helper()
	s, err := db.Snapshot(g.Context())
	if err == nil {
		_, _, err = s.Get(g.Context(), "r", granted)
		_ = s.Close()
	}
	// The primary is in another table, which the client may write: each operation is checked.
	also := db.Transact(g.Context(), func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a"+who, free, []byte("v"))
		tx.Set("r", granted, []byte("v"))
		return nil
	})
	for what, c := range map[string]struct {
		err error
		may bool
	}{"read": {err, mayRead}, "write": {also, mayWrite}} {
		if (c.err == nil) != c.may || !c.may && !errors.Is(c.err, percolator.ErrPermission) {
			g.Errorf("GRANT-IGNORED: %s of %s: %v", what, who, c.err)
		}
	}
}

// ask sends the console a query with its own reader's token.
func (g *granting) ask(question string) (int, string) {
	g.Helper()
	g.asked++
	req, err := http.NewRequestWithContext(g.Context(), http.MethodGet,
		"http://"+g.node.HTTPAddr()+"/api/v1/"+question, nil)
	if err != nil {
		g.Fatal(err)
	}
	secret, hash := certs.NewToken()
	_, err = pb.NewAdminClient(g.rpc.AdminConn()).CreateToken(g.Context(), &pb.CreateTokenRequest{
		Name: fmt.Sprint("token", g.asked), Role: "reader", TtlMs: 100_000, Hash: hash,
	})
	if err != nil {
		g.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		g.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// shown requires that the console displays rows of the table, or that it does not.
func (g *granting) shown(want bool) {
	g.Helper()
	code, _ := g.ask("rows?table=t")
	parked, _ := g.ask("parked?observer=watches")
	_, contended := g.ask("contended")
	if (code == 200) != want || (parked == 200) != want ||
		strings.Contains(contended, `"hot"`) != want {
		g.Errorf("GRANT-IGNORED: the console's rows: %d, parked: %d; contended: %s", code, parked,
			contended)
	}
}

// backedUp requires that a client may back up all tables, or is refused: a backup names missing
// tables in an error, and never omits them.
func (g *granting) backedUp(who string, db *percolator.DB, want bool) {
	g.Helper()
	l, err := backup.Open(g.Context(), g.TempDir())
	if err == nil {
		_, err = backup.Create(g.Context(), handle.Client(db), l, backup.CreateOptions{})
	}
	if (err == nil) != want {
		g.Errorf("BACKUP-INCOMPLETE: of %s: %v", who, err)
	}
}

// TestGrants: an operator grants one client writing and another reading of a table; all others are
// refused from then on, and so are both beyond their grant, until it is revoked.
func TestGrants(t *testing.T) {
	g := newGranting(t)
	ann, bob, eve := g.client("ann"), g.client("bob"), g.client("eve")
	conflict(t, g.operator, "hot", granted)
	g.may("eve", eve, true, true)
	g.shown(true)
	g.grant("ann", "writer")
	g.grant("bob", "reader")
	g.may("ann", ann, true, true)
	g.may("bob", bob, true, false)
	g.may("eve", eve, false, false)
	g.may("the operator", g.operator, true, true)
	g.shown(false)
	for who, db := range map[string]*percolator.DB{"eve": eve, "bob": bob, "the operator": g.operator} {
		tables, err := db.Tables(t.Context())
		if err != nil || (len(tables) == 2) != (who != "eve") {
			t.Errorf("GRANT-TOLD: to %s: %v, %v", who, tables, err)
		}
	}
	// A lock in the table without grants. Its primary, in the table with grants, was never written.
	orphan(t, g.rpc, "t", free)
	reads(t, eve, "orphan", free)
	g.backedUp("the operator", g.operator, true)
	g.backedUp("eve", eve, false)
	fresh := g.client("gus").CreateTable(t.Context(), percolator.TableSpec{Name: "t"})
	if !errors.Is(fresh, percolator.ErrPermission) {
		t.Errorf("GRANT-TOLD: a table that is hidden is recreated: %v", fresh)
	}
	g.grant("ann", "")
	g.may("ann, afterwards", ann, false, false)
	g.grant("bob", "")
	g.may("eve, afterwards", eve, true, true)
}

// orphan leaves a lock that has just expired on the row orphan of a column. Its primary, in another
// table, was never prewritten.
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

// reads requires that the row can be read and has no value in the column.
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

// conflict makes a transaction conflict on a row.
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

package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// dropLost loses the answer to the first drop of a table, and another process then creates a table
// of that name.
type dropLost struct {
	*txntest.Process
	drops int
}

func (d *dropLost) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	if err := d.Process.DropTable(ctx, name, id); err != nil {
		return err
	}
	if d.drops++; d.drops > 1 {
		return nil
	}
	if _, err := d.CreateTable(ctx, &pb.CreateTableRequest{Name: name}); err != nil {
		return err
	}
	return fmt.Errorf("%w: the answer was lost", txn.ErrUnavailable)
}

// TestDropAfterALostAnswer: the attempt after a lost answer does not drop another process's table.
func TestDropAfterALostAnswer(t *testing.T) {
	w := newWorld(t)
	d := &dropLost{Process: w.Process(7, 1)}
	c := txn.NewClient(d, txn.Config{})
	defer func() { _ = c.Close() }()
	if err := c.DropTable(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	tables, err := c.Tables(w.ctx)
	if err != nil || len(tables) != 1 || tables[0].Name != "t" {
		t.Errorf("%d orders; another's table is gone: %v, %v", d.drops, tables, err)
	}
}

// dropRaced makes another process drop and recreate the table between the client's lookup and its
// drop.
type dropRaced struct{ *txntest.Process }

func (d *dropRaced) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	if err := d.Process.DropTable(ctx, name, id); err != nil {
		return err
	}
	if _, err := d.CreateTable(ctx, &pb.CreateTableRequest{Name: name}); err != nil {
		return err
	}
	return d.Process.DropTable(ctx, name, id)
}

// TestDropOfTheTableThatWasSeen: a table that takes the name after the client's lookup stays.
func TestDropOfTheTableThatWasSeen(t *testing.T) {
	w := newWorld(t)
	c := txn.NewClient(&dropRaced{w.Process(7, 1)}, txn.Config{})
	defer func() { _ = c.Close() }()
	if err := c.DropTable(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	tables, err := c.Tables(w.ctx)
	if err != nil || len(tables) != 1 || tables[0].Name != "t" {
		t.Errorf("the tables are %v, %v, want t alone", tables, err)
	}
	if err := c.DropTable(w.ctx, "none"); !errors.Is(err, txn.ErrNoTable) {
		t.Errorf("a table that there is not: %v", err)
	}
}

// TestRecreatedTable: a client that knows a table's id reads and follows the table that another client has
// created since under the same name.
func TestRecreatedTable(t *testing.T) {
	w := newWorld(t)
	other, _ := w.client(txn.Config{})
	w.set(other, "old", "a")
	reads := map[string]func(c *txn.Client, s *txn.Snapshot) (string, error){
		"get": func(_ *txn.Client, s *txn.Snapshot) (string, error) {
			v, _, err := s.Get(w.ctx, key("a"))
			return string(v), err
		},
		"get several": func(_ *txn.Client, s *txn.Snapshot) (string, error) {
			v, err := s.GetMulti(w.ctx, []txn.Key{key("a")})
			if err != nil {
				return "", err
			}
			return string(v[0].Bytes), nil
		},
		"scan": func(_ *txn.Client, s *txn.Snapshot) (v string, err error) {
			for c, err := range s.Scan(w.ctx, txn.ScanSpec{Table: "t"}) {
				if err != nil {
					return "", err
				}
				v += string(c.Value)
			}
			return v, nil
		},
		"changes": func(c *txn.Client, s *txn.Snapshot) (string, error) {
			for c, err := range c.Changes(w.ctx, txn.ChangeSpec{Ranges: []txn.ScanSpec{{Table: "t"}}, After: s.Timestamp()}) {
				if err != nil || c.Resolved != 0 {
					return "new", err
				}
			}
			return "", nil
		},
	}
	clients := map[string]*txn.Client{}
	var gone atomic.Bool
	dropped := uint32(w.table)
	for what := range reads {
		c, p := w.client(txn.Config{})
		clients[what] = c
		p.Inject(func(req *pb.TabletRequest) (f txntest.Fault) {
			table := req.GetScan().GetSpan().GetTable() + req.GetChanges().GetSpan().GetTable()
			if get := req.GetGet(); get != nil {
				table = get.Cells[0].Table
			}
			if gone.Load() && table == dropped {
				f.Answer = &pb.Error{Code: pb.Error_CODE_NO_TABLE, Message: "dropped"}
			}
			return f
		})
		if got := w.get(clients[what], "a"); got != "old" {
			t.Fatal(got)
		}
	}
	if err := other.DropTable(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := other.CreateTable(w.ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	w.set(other, "new", "a")
	gone.Store(true)
	for what, read := range reads {
		s, err := clients[what].Snapshot(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(clients[what], s); got != "new" || err != nil {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		_ = s.Close()
	}
}

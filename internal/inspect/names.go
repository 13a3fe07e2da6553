package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// metaName is the name of the meta tablet's table in output.
const metaName = "(meta)"

// Names translates between tables and their ids. ByID and Address accept nil, which knows none.
type Names struct {
	IDs   map[string]mvcc.TableID // without dropped and hidden tables
	texts map[uint32]string
}

// ReadNames reads the tables from meta, including dropped ones, whose locks may remain, but not
// those hidden from the caller.
func ReadNames(ctx context.Context, t txn.Transport) (*Names, error) {
	tables, err := t.Tables(ctx)
	if err != nil {
		return nil, err
	}
	n := &Names{
		IDs: map[string]mvcc.TableID{}, texts: map[uint32]string{uint32(mvcc.MetaTable): metaName},
	}
	for _, t := range tables {
		if t.Hidden { // shown by its number
			continue
		}
		n.texts[t.Id] = t.Name
		if t.DroppedTs == 0 {
			n.IDs[t.Name] = mvcc.TableID(t.Id)
		}
	}
	return n, nil
}

// Table returns the id of a table.
func (n *Names) Table(name string) (mvcc.TableID, error) {
	id, ok := n.IDs[name]
	if !ok {
		return 0, coded.Errorf("", "%w: %s", percolator.ErrNoTable, Printable(name))
	}
	return id, nil
}

// Chosen returns the table that args[0] names or, without args, all tables in IDs.
func (n *Names) Chosen(args []string) ([]mvcc.TableID, error) {
	if len(args) > 0 {
		id, err := n.Table(args[0])
		return []mvcc.TableID{id}, err
	}
	return slices.Sorted(maps.Values(n.IDs)), nil
}

// ByID returns the name of a table, or its number if it has none.
func (n *Names) ByID(id uint32) string {
	if n != nil {
		if name, ok := n.texts[id]; ok {
			return name
		}
	}
	return fmt.Sprintf("table %d", id)
}

// Address returns row.column of a cell, with the table in front if it is another than that
// of the cell it is seen from.
func (n *Names) Address(from, c *pb.Cell) string {
	text := Printable(string(c.GetRow())) + "." + ColumnText(c)
	if c.GetTable() != from.GetTable() {
		text = n.ByID(c.GetTable()) + "/" + text
	}
	return text
}

// ColumnText returns a column's name in tables; an acknowledgment column shows as ack_O.
func ColumnText(c *pb.Cell) string { return AckPrefix(c) + Printable(string(c.GetColumn())) }

// AckPrefix begins the names of acknowledgment columns.
func AckPrefix(c *pb.Cell) string {
	if mvcc.Class(c.GetClass()) == mvcc.ClassAck {
		return "ack_"
	}
	return ""
}

package gateway

import (
	"unicode/utf8"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Conversion of cells between the API and package percolator. Of two fields of a request that may hold a
// row, a column or a value, at most one is set, so their concatenation is the field that is set.

// address is a message that names a cell.
type address interface {
	GetTable() string
	GetRow() string
	GetRowBytes() []byte
	GetColumn() string
	GetColumnBytes() []byte
}

// keyOf returns the address in the message.
func keyOf(a address) (percolator.CellKey, error) {
	if err := checkTable(a.GetTable()); err != nil {
		return percolator.CellKey{}, err
	}
	return percolator.CellKey{
		Row: a.GetRow() + string(a.GetRowBytes()),
		Column: percolator.Column{
			Table: a.GetTable(), Name: a.GetColumn() + string(a.GetColumnBytes()),
		},
	}, nil
}

// keysOf returns the addresses in the messages.
func keysOf(all []*gw.Key) ([]percolator.CellKey, error) {
	keys := make([]percolator.CellKey, len(all))
	for i, k := range all {
		var err error
		if keys[i], err = keyOf(k); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// checkTable returns an error if a request may not name the table. It refuses rpc.OutcomesTable,
// because internal/rpc lets every caller use that table through the gateway.
func checkTable(name string) error {
	switch name {
	case "":
		return txn.Invalid("a request names no table")
	case rpc.OutcomesTable:
		return txn.Errorf("%w: the table %s is the gateway's: use another table", percolator.ErrPermission, name)
	}
	return nil
}

// encoder writes rows, columns and values of answers: as bytes, or as texts where they are UTF-8.
type encoder struct{ bytes bool }

// text reports whether s is written as a text.
func (e encoder) text(s string) bool { return !e.bytes && utf8.ValidString(s) }

// key returns a cell of the address.
func (e encoder) key(k percolator.CellKey) *gw.Cell {
	c := &gw.Cell{Table: k.Column.Table}
	if e.text(k.Row) {
		c.RowAs = &gw.Cell_Row{Row: k.Row}
	} else {
		c.RowAs = &gw.Cell_RowBytes{RowBytes: []byte(k.Row)}
	}
	if e.text(k.Column.Name) {
		c.ColumnAs = &gw.Cell_Column{Column: k.Column.Name}
	} else {
		c.ColumnAs = &gw.Cell_ColumnBytes{ColumnBytes: []byte(k.Column.Name)}
	}
	return c
}

// cell returns a cell that exists.
func (e encoder) cell(c percolator.Cell) *gw.Cell {
	out := e.key(c.CellKey)
	out.Found, out.CommitTimestamp = true, uint64(c.CommitTS)
	switch {
	case c.Value == nil: // not read
	case e.text(string(c.Value)):
		out.ValueAs = &gw.Cell_Value{Value: string(c.Value)}
	default:
		out.ValueAs = &gw.Cell_ValueBytes{ValueBytes: c.Value}
	}
	return out
}

// cells returns one cell for each key, from those that exist.
func (e encoder) cells(keys []percolator.CellKey, found map[percolator.CellKey]percolator.Cell) []*gw.Cell {
	out := make([]*gw.Cell, len(keys))
	for i, k := range keys {
		if c, ok := found[k]; ok {
			out[i] = e.cell(c)
		} else {
			out[i] = e.key(k)
		}
	}
	return out
}

// byKey returns the cells by their address. Values that exist are not nil.
func byKey(cells []percolator.Cell) map[percolator.CellKey]percolator.Cell {
	found := make(map[percolator.CellKey]percolator.Cell, len(cells))
	for _, c := range cells {
		if c.Value == nil {
			c.Value = []byte{}
		}
		found[c.CellKey] = c
	}
	return found
}

// rangeOf returns the rows and the columns of a range.
func rangeOf(r *gw.RowRange) (percolator.RowRange, []percolator.Column, error) {
	if err := checkTable(r.GetTable()); err != nil {
		return percolator.RowRange{}, nil, err
	}
	rows := percolator.Rows(r.GetTable())
	if p := r.GetPrefix() + string(r.GetPrefixBytes()); p != "" {
		rows = rows.Prefix(p)
	}
	rows = rows.From(r.GetFrom() + string(r.GetFromBytes()))
	if r.GetBeforeAs() != nil {
		rows = rows.Before(r.GetBefore() + string(r.GetBeforeBytes()))
	}
	var cols []percolator.Column
	for _, name := range r.GetColumns() {
		cols = append(cols, percolator.Column{Table: r.GetTable(), Name: name})
	}
	for _, name := range r.GetColumnsBytes() {
		cols = append(cols, percolator.Column{Table: r.GetTable(), Name: string(name)})
	}
	return rows, cols, nil
}

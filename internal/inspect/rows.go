package inspect

import (
	"context"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/txn"
)

// Pages of rows, and one row with all its entries. Both are bounded in rows, cells and bytes.

const (
	pageRows    = 50
	pageCells   = 500
	listedBytes = 200     // of a value in a page of rows
	shownBytes  = 4 << 10 // of a value in a row's page
	rowEntries  = 1000
)

// RowsQuery selects rows.
type RowsQuery struct {
	Table, Prefix string
	After         *string        // rows after this one; nil: from the first
	At            mvcc.Timestamp // 0: now
}

// Rows is a page of rows as of a time.
type Rows struct {
	At   uint64  `json:"at_ts"`
	Rows []RowAt `json:"rows"`
	More bool    `json:"more"` // there may be rows after the last one
}

// RowAt is one row as of a time.
type RowAt struct {
	Row   pbjson.Bytes `json:"row"`
	Cells []CellAt     `json:"cells"`
	More  bool         `json:"more"` // cells are omitted
}

// CellAt is a cell as of a time.
type CellAt struct {
	Column   pbjson.Bytes `json:"column"`
	Value    pbjson.Bytes `json:"value"` // its first bytes
	Bytes    int          `json:"bytes"` // size of the whole value
	CommitTS uint64       `json:"commit_ts"`
}

// ReadRows returns a page of rows. Like any snapshot it waits for committing transactions and
// resolves locks of dead ones.
func ReadRows(ctx context.Context, db *percolator.DB, q RowsQuery) (_ *Rows, err error) {
	var snapshot *percolator.Snapshot
	if q.At == 0 {
		snapshot, err = db.Snapshot(ctx)
	} else {
		snapshot, err = db.SnapshotAt(ctx, percolator.Timestamp(q.At))
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = snapshot.Close() }()
	span := percolator.Rows(q.Table).Prefix(q.Prefix).Limit(pageRows + 1)
	if q.After != nil {
		span = span.From(*q.After + "\x00")
	}
	out, cells := &Rows{At: uint64(snapshot.StartTS()), Rows: []RowAt{}}, 0
	for c, err := range snapshot.Scan(ctx, span) {
		if err != nil {
			return nil, err
		}
		last := len(out.Rows) - 1
		if next := last < 0 || string(out.Rows[last].Row) != c.Row; next {
			if len(out.Rows) == pageRows || cells >= pageCells {
				out.More = true
				return out, nil
			}
			out.Rows, last = append(out.Rows, RowAt{Row: pbjson.Bytes(c.Row)}), last+1
		} else if cells >= pageCells {
			out.More, out.Rows[last].More = true, true
			return out, nil
		}
		cells++
		out.Rows[last].Cells = append(out.Rows[last].Cells, CellAt{
			Column: pbjson.Bytes(c.Column.Name), CommitTS: uint64(c.CommitTS),
			Value: pbjson.Bytes(c.Value[:min(len(c.Value), listedBytes)]), Bytes: len(c.Value),
		})
	}
	return out, nil
}

// StoredRow holds all entries of a row.
type StoredRow struct {
	Row     pbjson.Bytes  `json:"row"`
	At      uint64        `json:"at_ts"` // the oracle's time when it was read
	Entries []StoredEntry `json:"entries"`
	More    bool          `json:"more"` // there may be more entries
}

// StoredEntry is an Entry whose value may be truncated.
type StoredEntry struct {
	Entry
	Bytes int `json:"bytes"` // size of the whole value
}

// ReadRow returns the entries of a row. It neither waits for locks nor resolves them.
func ReadRow(ctx context.Context, client *txn.Client, table, row string) (*StoredRow, error) {
	names, err := ReadNames(ctx, client.Transport())
	if err != nil {
		return nil, err
	}
	id, err := names.Table(table)
	if err != nil {
		return nil, err
	}
	entries, err := Row(ctx, client, id, row, rowEntries+1)
	if err != nil {
		return nil, err
	}
	at, err := client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	out := &StoredRow{
		Row: pbjson.Bytes(row), At: uint64(at), Entries: []StoredEntry{}, More: Bounded(entries),
	}
	if len(entries) > rowEntries {
		entries, out.More = entries[:rowEntries], true
	}
	for _, e := range entries {
		stored := StoredEntry{Entry: NewEntry(e, names)}
		if v := stored.Value; v != nil {
			cut := (*v)[:min(len(*v), shownBytes)]
			stored.Bytes, stored.Value = len(*v), &cut
		}
		out.Entries = append(out.Entries, stored)
	}
	return out, nil
}

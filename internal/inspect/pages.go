package inspect

import (
	"context"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Pages of rows, one row with all its entries, and pages of an observer's parked notifications. All are
// bounded in rows, cells and bytes.

const (
	pageRows    = 50
	pageCells   = 500
	listedBytes = 200     // of a value in a page of rows
	shownBytes  = 4 << 10 // of a value in a row's page
	rowEntries  = 1000

	pageParked   = 50
	walkedParked = 20_000 // maximum number of notifications, waiting ones included, scanned for a page
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

// ParkedPage is a page of parked notifications, in row order.
type ParkedPage struct {
	At     uint64       `json:"at_ts"` // the oracle's time when they were read
	Parked []ParkedRow  `json:"parked"`
	More   bool         `json:"more"` // there may be more after Last
	Last   pbjson.Bytes `json:"last"` // the last scanned row
}

// ParkedRow is the parked notification of one row.
type ParkedRow struct {
	Row      pbjson.Bytes `json:"row"`
	Attempts uint32       `json:"attempts"` // runs that failed
	TS       uint64       `json:"ts"`       // of the change
	ParkedTS uint64       `json:"parked_ts"`
	Error    string       `json:"error"` // of the last run, at most 1 KiB
}

// ReadParked returns a page of an observer's parked notifications of rows after after; nil means
// from the first. An empty page may still set More.
func ReadParked(ctx context.Context, client *txn.Client, of *pb.ObserverInfo,
	after *string) (*ParkedPage, error) {
	at, err := client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	from := ""
	if after != nil {
		from = *after + "\x00"
	}
	out, walked := &ParkedPage{At: uint64(at), Parked: []ParkedRow{}}, 0
	for e, err := range client.WalkFrom(ctx, mvcc.GroupNotify, wire.NotifyColumn(of), from) {
		if err != nil {
			return nil, err
		}
		if len(out.Parked) == pageParked || walked == walkedParked {
			out.More = true
			break
		}
		walked++
		out.Last = pbjson.Bytes(e.GetCell().GetRow())
		n := e.GetNotify()
		if n.GetParkedTs() == 0 {
			continue
		}
		out.Parked = append(out.Parked, ParkedRow{
			Row: out.Last, Attempts: n.GetAttempts(), TS: n.GetTs(), ParkedTS: n.GetParkedTs(),
			Error: n.GetError(),
		})
	}
	return out, nil
}

// ReadObserver returns the observer with the name from the catalogue.
func ReadObserver(ctx context.Context, client *txn.Client, name string) (*pb.ObserverInfo, error) {
	catalogue, err := client.Transport().Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	if o := FindObserver(catalogue, name); o != nil {
		return o, nil
	}
	return nil, NoObserver(name)
}

package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file reads what a Chain needs: rows, once each, and the records of a transaction.

// newestUpTo returns the newest of the write records of a cell at or below a timestamp; nil if there is
// none.
func newestUpTo(changes []*pb.HistoryEntry, newest uint64) *pb.HistoryEntry {
	i, found := slices.BinarySearchFunc(changes, newest, byCommit)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	return changes[i]
}

func byCommit(e *pb.HistoryEntry, ts uint64) int { return cmp.Compare(e.Write.CommitTs, ts) }

func byStart(e *pb.HistoryEntry, ts uint64) int { return cmp.Compare(e.Write.StartTs, ts) }

// readRow holds the entries of a row, or of some of its cells.
type readRow struct {
	entries []*pb.HistoryEntry
	// Write records: of a transaction, by its start timestamp, and of a cell, in order. Start and commit
	// timestamps have the same order, since a transaction fails at a write that is newer than its start.
	writers map[uint64][]*pb.HistoryEntry
	writes  map[mvcc.Cell][]*pb.HistoryEntry
	others  []*pb.HistoryEntry // locks, notifications, rollbacks
}

// read reads a row, or some of its cells, once.
func (t *Chain) read(ctx context.Context, table mvcc.TableID, row string, only ...mvcc.Cell) (*readRow, error) {
	key := fmt.Sprint(table, row, only)
	if known := t.rows[key]; known != nil {
		return known, nil
	}
	entries, err := Row(ctx, t.Client, table, row, 0, only...)
	if err != nil {
		return nil, err
	}
	r := &readRow{
		entries: entries, writers: map[uint64][]*pb.HistoryEntry{}, writes: map[mvcc.Cell][]*pb.HistoryEntry{},
	}
	for _, e := range entries {
		if !IsWrite(e) {
			r.others = append(r.others, e)
			continue
		}
		r.writers[e.Write.StartTs] = append(r.writers[e.Write.StartTs], e)
		cell := wire.Cell(e.Cell)
		if cell.Class != mvcc.ClassAck || e.Write.Kind != pb.Kind_KIND_DELETE { // a cleared acknowledgment is no run
			r.writes[cell] = append(r.writes[cell], e)
		}
	}
	for _, changes := range r.writes {
		slices.SortFunc(changes, func(a, b *pb.HistoryEntry) int { return byCommit(a, b.Write.CommitTs) })
	}
	t.rows[key] = r
	return r, nil
}

// traces holds the records of one transaction.
type traces struct {
	writes []WroteCell
	more   bool
	acks   []*pb.Cell // of its run; more than one only for batches
	// its waiting weak notifications
	notified []*pb.HistoryEntry
}

// look finds a transaction's records in the row that it wrote and in the searched tables.
func (t *Chain) look(ctx context.Context, step *Step) (*traces, error) {
	table, row := mvcc.TableID(step.at.Table), string(step.at.Row)
	read, err := t.read(ctx, table, row)
	if err != nil {
		return nil, err
	}
	if Bounded(read.entries) { // entries may be missing: read at least the observed cells
		t.Wide = true
		cells := []mvcc.Cell{wire.Cell(step.at)}
		for _, o := range t.Catalogue.GetObservers() {
			if mvcc.TableID(o.Table) != table {
				continue
			}
			if observed := wire.ColumnOf(o).Cell(row); !slices.Contains(cells, observed) {
				cells = append(cells, observed)
			}
			cells = append(cells,
				mvcc.Cell{Table: table, Row: row, Class: mvcc.ClassAck, Column: o.Name})
		}
		if read, err = t.read(ctx, table, row, cells...); err != nil {
			return nil, err
		}
	}
	found := &traces{}
	for _, e := range read.writers[step.StartTS] {
		found.add(e.Cell, e.Write.Kind, t.Names)
	}
	for _, e := range read.others {
		if mvcc.Group(e.Group) == mvcc.GroupNotify && e.GetNotify().GetTs() == step.CommitTS {
			if o := t.notified(e.Cell); o != nil && o.Weak {
				found.notified = append(found.notified, e)
			}
		}
	}
	for _, id := range t.Search {
		if err := t.searchTable(ctx, id, step, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// add adds a cell that the transaction wrote, unless it was added before: both the row and the
// search may report it.
func (f *traces) add(cell *pb.Cell, kind pb.Kind, names *Names) {
	if mvcc.Class(cell.Class) == mvcc.ClassAck {
		if !slices.ContainsFunc(f.acks, func(c *pb.Cell) bool { return SameCell(c, cell) }) {
			f.acks = append(f.acks, cell)
		}
		return
	}
	if slices.ContainsFunc(f.writes, func(w WroteCell) bool { return SameCell(w.cell, cell) }) {
		return
	}
	if len(f.writes) == maxWrites {
		f.more = true
		return
	}
	f.writes = append(f.writes, WroteCell{*NewCell(cell, names), KindName(kind), cell})
}

// searchTable scans a table for the records of one commit timestamp, until maxWrites is exceeded.
func (t *Chain) searchTable(ctx context.Context, id mvcc.TableID, step *Step,
	found *traces) error {
	commit := mvcc.Timestamp(step.CommitTS)
	for c, err := range t.Client.Records(ctx, txn.RecordScan{
		Span: mvcc.Span{Table: id}, At: commit, Since: commit - 1,
	}) {
		if errors.Is(err, percolator.ErrSnapshotTooOld) {
			t.Old = true
			return nil
		}
		if err != nil {
			return err
		}
		if uint64(c.StartTS) != step.StartTS {
			continue
		}
		kind := pb.Kind_KIND_PUT
		if c.Deleted {
			kind = pb.Kind_KIND_DELETE
		}
		if found.add(wire.CellPB(c.Cell), kind, t.Names); found.more {
			return nil
		}
	}
	return nil
}

// FindObserver returns the observer with the name; nil if there is none.
func FindObserver(c *pb.Catalogue, name string) *pb.ObserverInfo {
	for _, o := range c.GetObservers() {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// observersOf returns the observers of a cell's column.
func (t *Chain) observersOf(c *pb.Cell) (out []*pb.ObserverInfo) {
	for _, o := range t.Catalogue.GetObservers() {
		if !o.Retired && wire.ColumnOf(o) == mvcc.ColumnOf(wire.Cell(c)) {
			out = append(out, o)
		}
	}
	return out
}

// notified returns the observer whose notify cell this is; nil if there is none.
func (t *Chain) notified(c *pb.Cell) *pb.ObserverInfo {
	for _, o := range t.Catalogue.GetObservers() {
		if !o.Retired && wire.NotifyColumn(o) == mvcc.ColumnOf(wire.Cell(c)) {
			return o
		}
	}
	return nil
}

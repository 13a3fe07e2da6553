package store

// Reads of history collection: mvcc.SurveyView, on read workers, and mvcc.CollectView, on the
// tablets' own goroutines, each over a Snap of its own.

import (
	"bytes"
	"iter"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// History implements mvcc.SurveyView.
func (s *Snap) History(span mvcc.Span, below *mvcc.Cell) iter.Seq2[mvcc.CellWrite, error] {
	o := spanWalk(mvcc.GroupHistory, span, true)
	if below != nil {
		// The keys of below's entries are longer than seek and follow it, so a reverse walk omits them.
		if seek := appendCell(nil, mvcc.GroupHistory, *below); bytes.Compare(seek, o.seek) < 0 {
			o.seek = seek
		}
	}
	return entries(s, o, decodeHistory)
}

func decodeHistory(c mvcc.Cell, _ mvcc.Timestamp, value []byte) (mvcc.CellWrite, error) {
	w, err := DecodeWrite(value)
	w.Value = nil // the collector does not need the value
	return mvcc.CellWrite{Cell: c, Write: w}, err
}

// HistoryOf implements mvcc.CollectView: it returns each cell's records in H with
// commit_ts ≥ TS, oldest first, up to and including the first above upTo. One iterator
// serves all cells, which must be in descending order.
func (s *Snap) HistoryOf(cells []mvcc.CellAt, upTo mvcc.Timestamp) iter.Seq2[mvcc.CellWrite,
	error] {
	return func(yield func(mvcc.CellWrite, error) bool) {
		if len(cells) == 0 {
			return
		}
		it, err := s.iterator(badger.IteratorOptions{
			Prefix: []byte{byte(mvcc.GroupHistory)}, Reverse: true,
		})
		if err != nil {
			yield(mvcc.CellWrite{}, err)
			return
		}
		defer it.Close()
		for i := range cells {
			if !s.historyOf(it, &cells[i], upTo, yield) {
				return
			}
		}
	}
}

// historyOf yields one cell's records. It returns false if yield did, or after an error.
func (s *Snap) historyOf(it *badger.Iterator, c *mvcc.CellAt, upTo mvcc.Timestamp,
	yield func(mvcc.CellWrite, error) bool) bool {
	// The greatest key to return, since timestamps are inverted. It is not in s.key, which
	// the caller may overwrite between two records.
	seek := AppendKey(make([]byte, 0, c.Cell.KeyBytes()), mvcc.GroupHistory, c.Cell, c.TS)
	prefix := seek[:len(seek)-tsBytes]
	for it.Seek(seek); it.ValidForPrefix(prefix); it.Next() {
		item := it.Item()
		var cw mvcc.CellWrite
		err := item.Value(func(value []byte) (err error) {
			cw, err = decodeHistory(c.Cell, 0, value)
			return err
		})
		if err != nil {
			yield(mvcc.CellWrite{}, s.corrupt(item.Key(), err))
			return false
		}
		if !yield(cw, nil) {
			return false
		}
		if cw.Write.CommitTS > upTo {
			break
		}
	}
	return true
}

// Keys implements mvcc.SurveyView for the groups K, R, N and M.
func (s *Snap) Keys(g mvcc.Group, span mvcc.Span, after *mvcc.CellAt) iter.Seq2[mvcc.CellAt,
	error] {
	if columnFirst(g) {
		return s.columnKeys(g, span, after)
	}
	o := spanWalk(g, span, false)
	o.keysOnly = true
	if after != nil {
		seek := append(AppendKey(nil, g, after.Cell, after.TS), 0)
		if bytes.Compare(seek, o.seek) > 0 {
			o.seek = seek
		}
	}
	return entries(s, o, keyOnly)
}

func keyOnly(c mvcc.Cell, ts mvcc.Timestamp, _ []byte) (mvcc.CellAt, error) {
	return mvcc.CellAt{Cell: c, TS: ts}, nil
}

// columnKeys iterates over the keys of a column-first group whose rows are in the span, column
// by column. It seeks past rows outside the span.
func (s *Snap) columnKeys(g mvcc.Group, span mvcc.Span, after *mvcc.CellAt) iter.Seq2[mvcc.CellAt,
	error] {
	return func(yield func(mvcc.CellAt, error) bool) {
		it, err := s.iterator(badger.IteratorOptions{Prefix: appendTable(nil, g, span.Table)})
		if err != nil {
			yield(mvcc.CellAt{}, err)
			return
		}
		defer it.Close()
		seek := appendTable(nil, g, span.Table)
		if after != nil {
			seek = append(AppendKey(nil, g, after.Cell, after.TS), 0)
		}
		for it.Seek(seek); it.Valid(); {
			_, c, ts, err := DecodeKey(it.Item().Key())
			if err != nil {
				yield(mvcc.CellAt{}, s.corrupt(it.Item().Key(), err))
				return
			}
			column := appendColumn(nil, g, c.Table, c.Class, c.Column)
			switch {
			case c.Row < span.Start:
				it.Seek(appendEscaped(column, span.Start))
			case !span.Contains(c.Row):
				it.Seek(prefixEnd(column))
			default:
				if !yield(mvcc.CellAt{Cell: c, TS: ts}, nil) {
					return
				}
				it.Next()
			}
		}
	}
}

// AllIntents iterates over the weak intents of all columns for rows in the span.
func (s *Snap) AllIntents(span mvcc.Span) iter.Seq2[mvcc.CellIntent, error] {
	return func(yield func(mvcc.CellIntent, error) bool) {
		for k, err := range s.columnKeys(mvcc.GroupIntent, span, nil) {
			out := mvcc.CellIntent{Cell: k.Cell, StartTS: k.TS}
			if err == nil {
				out.Intent, _, err = s.Intent(k.Cell, k.TS)
			}
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}

// RawKeys counts Badger's keys by their first byte, including tombstones and old versions that
// no compaction has removed. For tests.
func (s *Store) RawKeys() map[byte]int {
	txn := s.state.db.NewTransactionAt(s.state.seq.pin(), false)
	defer s.state.seq.unpin(txn.ReadTs())
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{AllVersions: true})
	defer it.Close()
	out := map[byte]int{}
	for it.Rewind(); it.Valid(); it.Next() {
		out[it.Item().Key()[0]]++
	}
	return out
}

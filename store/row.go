package store

import (
	"fmt"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// rowGroups are the row-first groups that Row returns, in its order; M is not one of them.
var rowGroups = [...]mvcc.Group{
	mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupData, mvcc.GroupLock, mvcc.GroupLocked,
	mvcc.GroupRollback,
}

// rowBytes limits the bytes of values that Row returns, not counting the first entry of each group;
// these are returned until the sum reaches twice the limit.
const rowBytes = mvcc.HistoryBytes

// Row returns the row's entries in W, H, D, L, K and R, in that order, and then those in N and I of
// the given columns, which must be of this table: at most limit entries of each group, in N and I
// of each column, and about rowBytes of values in total (see there), to bound the result for a hot
// row. If only is given, it returns of W to R just the entries of those cells of the row, each cell
// with a limit of its own, so that the width of the row does not matter.
func (s *Snap) Row(t mvcc.TableID, row string, limit int, columns []mvcc.ObservedColumn,
	only ...mvcc.Cell) ([]mvcc.HistoryEntry, error) {
	var out []mvcc.HistoryEntry
	budget := rowBytes
	for _, g := range rowGroups {
		prefixes := [][]byte{appendRow(nil, g, t, row)}
		if len(only) > 0 {
			prefixes = prefixes[:0]
		}
		for _, c := range only {
			prefixes = append(prefixes, appendCell(nil, g, c))
		}
		for _, prefix := range prefixes {
			found, err := s.group(g, prefix, limit, &budget)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	for _, g := range []mvcc.Group{mvcc.GroupNotify, mvcc.GroupIntent} {
		for _, column := range columns {
			found, err := s.group(g, appendCell(nil, g, column.Cell(row)), limit, &budget)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// group returns the first limit entries with the prefix, or fewer if their values use up the
// budget of bytes, from which it subtracts them.
func (s *Snap) group(g mvcc.Group, prefix []byte, limit int,
	budget *int) (out []mvcc.HistoryEntry, err error) {
	if limit <= 0 || *budget <= -rowBytes {
		return nil, nil
	}
	all := entries(s, walkOptions{prefix: prefix},
		func(c mvcc.Cell, ts mvcc.Timestamp, value []byte) (mvcc.HistoryEntry, error) {
			e := mvcc.HistoryEntry{Group: g, Cell: c, TS: ts}
			err := decodeEntry(&e, value)
			return e, err
		})
	for e, err := range all {
		if err != nil {
			return nil, err
		}
		*budget -= len(e.Value)
		if out = append(out, e); len(out) == limit || *budget <= 0 {
			break
		}
	}
	return out, nil
}

// decodeEntry sets the fields of e that its group has. The bytes are copied.
func decodeEntry(e *mvcc.HistoryEntry, value []byte) error {
	switch e.Group {
	case mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupLocked:
		w, err := copyWrite(value)
		e.Write, e.Value = &w, w.Value
		if e.Group != mvcc.GroupHistory {
			e.TS = w.CommitTS
		}
		return err
	case mvcc.GroupLock:
		l, err := DecodeLock(value)
		e.Lock, e.Value, e.TS = &l, l.Value, l.StartTS
		return err
	case mvcc.GroupNotify:
		n, err := DecodeNotify(value)
		e.Notify, e.TS = &n, n.TS
		return err
	case mvcc.GroupIntent:
		i, err := DecodeIntent(value)
		e.Intent = &i
		return err
	case mvcc.GroupData, mvcc.GroupRaw, mvcc.GroupRollback:
		v, err := copyPlain(value)
		e.Value = v
		return err
	default:
		return fmt.Errorf("%w: unknown group %q", ErrBadKey, byte(e.Group))
	}
}

package store

// Estimates of the distribution of a tablet's bytes over its rows, to choose a split row. A tablet
// calls Weigh in steps on a read worker, because it visits every key.

import (
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// weighedGroups contain nearly all bytes of a tablet, except of raw cells (M), and sort by row.
var weighedGroups = [...]mvcc.Group{mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupData}

// Weighed reports whether the key is in a group that Weigh counts: W, H or D.
func Weighed(key []byte) bool {
	return len(key) > 0 && slices.Contains(weighedGroups[:], mvcc.Group(key[0]))
}

// Weight is the approximate size of one group's keys and values from the row up to the next
// Weight's.
type Weight struct {
	Row   string
	Bytes uint64
}

// WeighPlace is the position from which weighing continues. The zero value is the start.
type WeighPlace struct {
	group int
	key   []byte // the next key to weigh; nil: the first of the group
}

// Done reports whether everything is weighed.
func (p WeighPlace) Done() bool { return p.group == len(weighedGroups) }

// Weigh sums the sizes of the span's entries from a position on: of one group, and at most
// `most` keys. Each weight except the last of a call is at least step bytes. It reads no values
// except the heads of long ones, for their lengths.
func (s *Snap) Weigh(span mvcc.Span, from WeighPlace, most int,
	step uint64) (weights []Weight, next WeighPlace, err error) {
	g := weighedGroups[from.group]
	o := spanWalk(g, span, false)
	if from.key != nil {
		o.seek = from.key
	}
	it, err := s.iterator(badger.IteratorOptions{Prefix: o.prefix})
	if err != nil {
		return nil, from, err
	}
	defer it.Close()
	for it.Seek(o.seek); it.Valid(); it.Next() {
		item := it.Item()
		if past(o, item.Key()) {
			break
		}
		if most == 0 {
			return weights, WeighPlace{from.group, item.KeyCopy(nil)}, nil
		}
		most--
		size, err := weightOf(item)
		if err != nil {
			return nil, from, err
		}
		if n := len(weights); n > 0 && weights[n-1].Bytes < step {
			weights[n-1].Bytes += size
			continue
		}
		_, cell, _, err := DecodeKey(item.Key())
		if err != nil {
			return nil, from, err
		}
		weights = append(weights, Weight{Row: cell.Row, Bytes: size})
	}
	return weights, WeighPlace{group: from.group + 1}, nil
}

// weightOf returns the size of an entry in bytes, including its chunks.
func weightOf(item *badger.Item) (uint64, error) {
	size := uint64(len(item.Key())) + uint64(item.ValueSize())
	if item.UserMeta() != chunkedMeta {
		return size, nil
	}
	err := item.Value(func(head []byte) error {
		total, _, err := cutHead(head)
		size += uint64(max(0, total-len(head)))
		return err
	})
	return size, err
}

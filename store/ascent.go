package store

import (
	"bytes"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A lookup in Badger takes a reference to each memtable and to each table of level 0, searches all of
// them, and allocates eight objects. The records of a request's cells are often close to each other, as
// those of a batch of documents, and many do not exist yet. There an iterator that moves forward from
// one key to the next costs a quarter of the lookups, and one search answers for all rows that are being
// appended (docs/adr/0080).

// ascent answers a Snap's lookups of records in ascending order while their keys are close to each
// other.
type ascent struct {
	announced bool
	it        *badger.Iterator // nil until the first lookup
	prefix    []byte           // of the iterator's keys: the group and the table
	last      []byte           // the key looked up last
	steps     int              // number of steps that the iterator may still make
}

// Limits of an ascent. They bound the steps over entries that nobody looks up, superseded versions and
// deletions included, by the number of lookups.
const (
	ascentLeast = 16 // least number of announced lookups for an ascent
	ascentSpare = 8  // steps of the iterator at the beginning
	ascentSteps = 3  // further steps for each lookup
)

// Ascend announces lookups by Newest of this many cells in ascending order, and replaces the
// previous announcement. It changes only the cost of lookups, and nothing for fewer than
// ascentLeast.
func (s *Snap) Ascend(cells int) {
	s.endAscent()
	s.ascent.announced = cells >= ascentLeast
}

func (s *Snap) endAscent() {
	if s.ascent.it != nil {
		s.ascent.it.Close()
	}
	s.ascent = ascent{}
}

// ascend looks up a key by the ascent. known is false if it cannot answer: the caller looks it up
// in Badger.
func (s *Snap) ascend(key []byte) (item *badger.Item, known bool, err error) {
	a := &s.ascent
	if !a.announced || key[0] != byte(mvcc.GroupWrite) {
		return nil, false, nil
	}
	if a.it == nil {
		if err := s.beginAscent(key); err != nil {
			return nil, false, err
		}
	} else if !bytes.HasPrefix(key, a.prefix) || bytes.Compare(key, a.last) < 0 {
		return nil, false, nil
	}
	a.last = append(a.last[:0], key...)
	for a.steps += ascentSteps; a.it.Valid(); a.it.Next() {
		item := a.it.Item()
		switch c := bytes.Compare(item.Key(), key); {
		case c > 0 || c == 0 && item.IsDeletedOrExpired():
			return nil, true, nil
		case c == 0: // the newest version, which is the first
			return item, true, nil
		case a.steps == 0:
			s.endAscent()
			return nil, false, nil
		}
		a.steps--
	}
	return nil, true, nil
}

// beginAscent opens the iterator at the key. It returns all versions and deletions, because one that
// leaves them out passes any number of them in one step.
func (s *Snap) beginAscent(key []byte) (err error) {
	a := &s.ascent
	a.prefix, a.steps = bytes.Clone(key[:1+tableBytes]), ascentSpare
	if a.it, err = s.iterator(badger.IteratorOptions{Prefix: a.prefix, AllVersions: true}); err != nil {
		return err
	}
	a.it.Seek(key)
	return nil
}

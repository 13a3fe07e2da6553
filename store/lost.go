package store

import (
	"bytes"
	"errors"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// A compaction of Badger that cannot create one of its tables omits it, succeeds, and deletes the
// tables that it has read (docs/adr/0056). The gate prevents attempts while files are short, but
// the system can refuse a file for other reasons. Therefore, before the replaced tables are
// released (hold.go), some of their keys are looked up in the tables held and in the present ones.
// Both must have the same entry at or after the key.
//
// An omitted table is the last or the first that the compaction would have written, or one of some
// megabytes between two others. So the lookups are: the first and last key of each replaced
// table, one key every probeBytes of it, and what follows the end of each new table. The check can
// miss a table of less than probeBytes that was the last of a part of a compaction, if another
// level has an entry between the preceding table and its first entry.

// probeBytes is the distance between the keys looked up in a replaced table, in bytes of its file.
const probeBytes = 128 << 10

var errDiffers = errors.New("the compaction that replaced it lost rows, or revived deleted ones: " +
	"too few inodes, file descriptors or memory maps, a quota or an I/O error can be the cause")

// probes returns the keys to look up in a table.
func probes(t *table.Table) (keys [][]byte) {
	for _, key := range t.KeySplits(int(t.OnDiskSize()/probeBytes)+1, nil) {
		keys = append(keys, y.ParseKey([]byte(key)))
	}
	return append(keys, bytes.Clone(y.ParseKey(t.Biggest())))
}

// findMissing looks up the probes, and what follows new tables, in the old tables and in the
// present ones. It returns a *DamagedError that names a replaced table if they differ.
func (d *database) findMissing(old, now *heldTables, probes [][]byte) (err error) {
	defer func() {
		if recover() != nil { // Badger panics if it cannot read a table, see unreadable
			d.suspect()
			err = nil
		}
	}()
	for id, t := range now.tables {
		if _, had := old.tables[id]; !had {
			probes = append(probes, append(bytes.Clone(y.ParseKey(t.Right)), 0))
		}
	}
	slices.SortFunc(probes, bytes.Compare)
	txn := d.db.NewTransactionAt(old.seq, false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	var found []byte // the key at which the last lookup ended
	for _, key := range probes {
		if found != nil && bytes.Compare(key, found) <= 0 {
			continue // this lookup would end at the same key
		}
		old.it.Seek(key)
		it.Seek(key)
		switch {
		case !old.it.Valid() && !it.Valid():
			return nil
		case !old.it.Valid() || !it.Valid() || !sameEntry(old.it.Item(), it.Item()):
			return &DamagedError{File: d.replacedTable(old, now, key), Err: errDiffers}
		}
		found = old.it.Item().KeyCopy(found)
	}
	return nil
}

func sameEntry(a, b *badger.Item) bool {
	return a.Version() == b.Version() && bytes.Equal(a.Key(), b.Key())
}

// replacedTable returns the name of a table in old that is not in now, if possible of the one that
// contained the key.
func (d *database) replacedTable(old, now *heldTables, key []byte) (name string) {
	for id, t := range old.tables {
		if _, has := now.tables[id]; has {
			continue
		}
		name = table.NewFilename(id, d.db.Opts().Dir)
		if bytes.Compare(y.ParseKey(t.Left), key) <= 0 && bytes.Compare(key, y.ParseKey(t.Right)) <= 0 {
			return name
		}
	}
	return name
}

package store

import (
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/percolator-go/percolator/store/space"
)

// A compaction reads tables, writes the remaining entries into new ones, with new checksums, and
// deletes the old tables. It does not verify their checksums (tables.go). So the tables are held by
// an open iterator, which keeps their files, and those that a compaction has replaced are verified
// before they are released: their bytes are still in the page cache, and are those that were
// copied. The check also covers missing entries (lost.go). If a table is damaged, or entries are
// missing, the store fails permanently.
//
// watch calls checkReplaced when a compaction has ended and every second; Open, Close, Reclaim,
// Compact, Verify and VerifyRows call it too.
// A table that was created and replaced between two calls is not verified, nor is one that
// is replaced while the store closes.

// holder keeps the files of the database's tables until checkReplaced has verified them.
type holder struct {
	mu   sync.Mutex  // held while replaced tables are verified
	held *heldTables // nil before the first checkReplaced and once the database is being closed
}

// heldTables are the database's tables at one sequence number. The iterator also keeps the
// memtables of that moment with their log files, which Badger would replay after a crash. So no
// younger tombstone may be dropped until they are released (sequence.held).
type heldTables struct {
	seq uint64
	txn *badger.Txn
	it  *badger.Iterator
	// tables are those that the iterator reads, by id.
	tables map[uint64]badger.TableInfo
}

// hold opens an iterator, which keeps the files of all present tables. It returns nil if the
// database cannot be read.
func (d *database) hold() (h *heldTables) {
	defer func() {
		if recover() != nil { // Badger panics if it cannot read a table, see unreadable
			h = nil
		}
	}()
	seq := d.seq.hold()
	before := tables(d.db)
	txn := d.db.NewTransactionAt(seq, false)
	it := txn.NewIterator(badger.IteratorOptions{})
	held := tables(d.db)
	for id := range held {
		if _, had := before[id]; !had {
			delete(held, id) // it may be newer than the iterator, which then does not keep it
		}
	}
	return &heldTables{seq: seq, txn: txn, it: it, tables: held}
}

func (h *heldTables) release() {
	h.it.Close()
	h.txn.Discard()
}

func tables(db *badger.DB) map[uint64]badger.TableInfo {
	all := map[uint64]badger.TableInfo{}
	for _, t := range db.Tables() {
		all[t.ID] = t
	}
	return all
}

// checkReplaced verifies the tables that compactions have replaced since the last call, releases
// them, and holds the present ones. It returns a *DamagedError if one is damaged, or if rows of
// it are missing. After any other error they stay held until the next call.
func (d *database) checkReplaced() error {
	if d.db.Opts().InMemory {
		return nil
	}
	d.holder.mu.Lock()
	defer d.holder.mu.Unlock()
	old, now := d.holder.held, d.hold()
	if now == nil {
		return nil // Badger cannot be read; see unreadable
	}
	var damage error
	if old != nil {
		if damage = d.verifyReplaced(old, now); space.IsShortage(damage) {
			now.release()
			return damage
		}
		old.release()
	}
	d.holder.held = now
	d.seq.settle(max(now.seq, 1))
	return damage
}

// verifyReplaced verifies the tables of old that are not in now.
func (d *database) verifyReplaced(old, now *heldTables) error {
	var keys [][]byte
	for id := range old.tables {
		if _, has := now.tables[id]; has {
			continue
		}
		if _, err := verifyTable(table.NewFilename(id, d.db.Opts().Dir), true, func(t *table.Table) {
			keys = append(keys, probes(t)...)
		}); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return d.findMissing(old, now, keys)
}

// releaseTables releases the tables before the database is closed.
func (d *database) releaseTables() {
	d.holder.mu.Lock()
	defer d.holder.mu.Unlock()
	if d.holder.held != nil {
		d.holder.held.release()
		d.holder.held = nil
	}
	d.seq.settle(0)
}

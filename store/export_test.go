package store

import (
	"bytes"
	"iter"
	"reflect"
	"runtime"
	"time"
	"unsafe"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store/space"
)

// Compact flushes and compacts the state as far as Badger does, after reporting which versions may
// be discarded.
func Compact(s *Store) error {
	s.Reclaim()
	return Flatten(s)
}

// MaintainLog does what the worker does to the log every second.
func MaintainLog(s *Store) { s.maintainLog() }

// Flatten compacts the state without reporting anything, as Badger's own compactors do.
func Flatten(s *Store) error {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	return s.gate.UnlessStuck(func() error { return s.state.db.Flatten(numCompactors) })
}

// Versions returns the number of versions of a key that Badger still holds.
func Versions(s *Store, key []byte) int {
	txn := s.state.db.NewTransactionAt(s.state.seq.visible, false)
	defer txn.Discard()
	it := txn.NewKeyIterator(key, badger.IteratorOptions{AllVersions: true})
	defer it.Close()
	n := 0
	for it.Rewind(); it.Valid(); it.Next() {
		n++
	}
	return n
}

// Suspected reports whether a read has asked for the verification of all tables since the last call.
// A store in memory, which has no scrubber, keeps the request until then.
func Suspected(s *Store) bool {
	select {
	case <-s.suspicion:
		return true
	default:
		return false
	}
}

// CountPrefix returns the number of keys with a prefix.
func CountPrefix(s *Snap, prefix string) (n int) {
	s.walk(walkOptions{prefix: []byte(prefix), keysOnly: true}, func(_, _ []byte, err error) bool {
		n++
		return err == nil
	})
	return n
}

// AddTo adds a batch of short values to a Txn of another database.
func AddTo(txn *badger.Txn, b *Batch) error {
	for _, o := range b.ops {
		if err := txn.Set(o.key, o.value); err != nil {
			return err
		}
	}
	return nil
}

// DeleteChunk adds the deletion of one chunk of a long value, which no code of this package does.
func DeleteChunk(b *Batch, key []byte, i int) { b.Delete(chunkKey(key, i)) }

// ShrinkHotCells limits the state's memory for cells to this many slots. Call it before any read or
// write.
func ShrinkHotCells(s *Store, slots int) { s.state.hot = newHotCells(slots) }

// BeforeTxn calls f before every Txn, which fails with f's error.
func BeforeTxn(o *Options, f func() error) { o.beforeTxn = f }

// BeforeSync calls f before committed data is made durable, which fails with f's error.
func BeforeSync(o *Options, f func() error) { o.beforeSync = f }

// TxnBytes returns the largest Batch.Size that fits into one Txn.
func TxnBytes(s *Store) int {
	return int(s.state.db.MaxBatchSize()) - 64 // the overhead of one more entry
}

// EncodeMutation encodes m behind another, in memory intended for m alone.
func EncodeMutation(m *mvcc.Mutation) (key, value []byte) {
	e := NewEncoder([]mvcc.Mutation{*m}, false)
	otherKey, _ := e.Encode(&mvcc.Mutation{Group: mvcc.GroupRollback, TS: 1})
	before := bytes.Clone(otherKey)
	key, value = e.Encode(m)
	if !bytes.Equal(before, otherKey) {
		panic("what was encoded first has changed")
	}
	return key, value
}

// LoseMemtable puts the state's database into Badger's state after a failed creation of a memtable;
// mend restores it.
func LoseMemtable(s *Store) (mend func()) {
	f := reflect.ValueOf(s.state.db).Elem().FieldByName("mt")
	mt := reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
	kept := reflect.New(f.Type()).Elem()
	kept.Set(mt)
	mt.SetZero()
	return func() { mt.Set(kept) }
}

// Replaced verifies the tables that compactions have replaced.
func Replaced(s *Store) { _ = s.checkReplaced() }

// Discarded returns the newest visible number, and the one up to which Badger may drop all versions
// except the newest, tombstones too.
func Discarded(s *Store) (visible, discarded uint64) {
	q := &s.state.seq
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.visible, q.discard
}

// LevelZero returns the number of tables in level 0 of the state.
func LevelZero(s *Store) int { return s.state.db.Levels()[0].NumTables }

// ScrubAll performs n turns of the scrubber as if no table had been verified for long.
func ScrubAll(s *Store, turns int) {
	for range turns {
		s.scrubOne(time.Now().Add(2 * scrubInterval))
	}
}

// ForgetVerified forgets which tables were verified.
func ForgetVerified(s *Store) {
	s.state.verified.mu.Lock()
	defer s.state.verified.mu.Unlock()
	s.state.verified.at = nil
}

// PutMutation adds one effect of the rules, in separate memory.
func (b *Batch) PutMutation(m *mvcc.Mutation) {
	e := NewEncoder([]mvcc.Mutation{*m}, false)
	if key, value := e.Encode(m); m.Delete {
		b.Delete(key)
	} else {
		b.Put(key, value)
	}
}

// Tombstones iterates the tombstones of all tablets by id.
func (s *Snap) Tombstones() iter.Seq2[TabletStateEntry, error] {
	return s.ownRecords(tombstonePrefix)
}

// FreeOf returns the free amount of a resource; memory maps are counted again.
func FreeOf(s *Store, what space.Resource) uint64 {
	s.space.CountAgain()
	return s.space.FreeFiles()[what]
}

// StateDir is the directory of Badger's files.
func StateDir(s *Store) string { return s.state.db.Opts().Dir }

// Flush writes the active memtable to a table, and waits between its two steps until the table
// exists.
func Flush(s *Store) error {
	began, err := s.padMemtable()
	if err != nil {
		return err
	}
	for !s.state.padded(began) {
		runtime.Gosched()
	}
	return s.awaitFlush(began)
}

// Discard reports to Badger which versions may be dropped.
func Discard(s *Store) { s.state.discard() }

package store

import (
	"bytes"
	"io"
	"math"
	"os"
	"reflect"
	"time"
	"unsafe"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Compact flushes and compacts the state as far as Badger goes, after telling it what may be discarded.
func Compact(s *Store) error {
	s.Reclaim()
	return Flatten(s)
}

// Flatten compacts the state without more ado, as Badger's own compactors do.
func Flatten(s *Store) error {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	s.state.rouse()
	return s.state.db.Flatten(numCompactors)
}

// Versions counts the versions of a key that Badger still holds.
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

// BreakSync makes every sync fail from now on.
func BreakSync(s *Store) error {
	_, err := BreakSyncUntil(s)
	return err
}

// BreakSyncUntil makes every sync fail until mend is called.
func BreakSyncUntil(s *Store) (mend func(), err error) {
	r, w, err := os.Pipe() // which cannot be synced
	if err != nil {
		return nil, err
	}
	j := s.state.durable.journal
	file := j.file
	j.file = r
	return func() { j.file = file }, w.Close()
}

// AheadBytes is how much of a new journal is given its place on the disk at once.
const AheadBytes = aheadBytes

// NoAhead leaves the rest of the journal that is written without its place.
func NoAhead(s *Store) { s.state.durable.journal.placed = math.MaxInt64 }

// Journals are the names of the journals, and the one that is written.
func Journals(s *Store) (all []string, active string) {
	for _, j := range s.state.durable.journals {
		all = append(all, j.file.Name())
	}
	return all, s.state.durable.journal.file.Name()
}

// CountPrefix counts the keys with a prefix.
func CountPrefix(s *Snap, prefix string) (n int) {
	s.walk(walkOptions{prefix: []byte(prefix), keysOnly: true}, func(_, _ []byte, err error) bool {
		n++
		return err == nil
	})
	return n
}

// DeleteEntry adds the deletion of one log entry, as no code of this package does.
func DeleteEntry(b *Batch, tablet, index uint64) { b.Delete(appendEntryKey(nil, tablet, index)) }

// AddTo adds a batch of short values to a Txn of another database.
func AddTo(txn *badger.Txn, b *Batch) error {
	for _, o := range b.ops {
		if err := txn.Set(o.key, o.value); err != nil {
			return err
		}
	}
	return nil
}

// DeleteChunk adds the deletion of one chunk of a long value, as no code of this package does.
func DeleteChunk(b *Batch, key []byte, i int) { b.Delete(appendChunkKey(nil, key, i)) }

// LogFile is the number of the log file that the writer syncs.
func LogFile(s *Store) int { return s.state.durable.fid }

// ShrinkHotCells leaves the state so many slots for cells in memory. Before anything is read or written.
func ShrinkHotCells(s *Store, slots int) { s.state.hot = newHotCells(slots) }

// BeforeTxn has f called before every Txn, which fails with its error.
func BeforeTxn(o *Options, f func() error) { o.beforeTxn = f }

// TxnBytes is the greatest Batch.Size that goes in one Txn.
func TxnBytes(s *Store) int {
	n, _ := s.state.writer.txnLimits()
	return n
}

// EncodeMutation encodes m behind another, in memory that was meant for m alone.
func EncodeMutation(m *mvcc.Mutation) (key, value []byte) {
	e := NewEncoder([]mvcc.Mutation{*m})
	otherKey, _ := e.Encode(&mvcc.Mutation{Group: mvcc.GroupRollback, TS: 1})
	before := bytes.Clone(otherKey)
	key, value = e.Encode(m)
	if !bytes.Equal(before, otherKey) {
		panic("what was encoded first has changed")
	}
	return key, value
}

// Look does one turn of the worker's.
func Look(s *Store) (resting bool) { return s.look() }

// Resting reports whether the state's compactors are stopped.
func Resting(s *Store) bool { return s.state.rest.resting() }

// Due reports whether Badger has something to compact in the state.
func Due(s *Store) bool { return s.state.due() }

// Looks are as many turns without a write as let the store rest.
const Looks = restAfter + 1

// Journal is one by itself.
type Journal struct{ j journal }

// NewJournal is one in a file, which may hold an older one.
func NewJournal(f *os.File) *Journal { return &Journal{journal{file: f}} }

// Write makes it the journal of a log file of the number, from its head up to an offset, in records of as many bytes as the steps say.
func (w *Journal) Write(log int, logFile io.ReaderAt, steps ...int64) error {
	if err := w.j.begin(log, logFile); err != nil {
		return err
	}
	at := int64(logHeadBytes)
	for _, n := range steps {
		at += n
		if err := w.j.copy(logFile, at); err != nil {
			return err
		}
	}
	return nil
}

// RestoreJournals is what Open does with those of a directory.
func RestoreJournals(dir string) error { return mendLogs(dir, true) }

// JournalEnd is where the next record of the active journal goes.
func JournalEnd(s *Store) int64 { return s.state.durable.journal.end }

// LogFiles are the numbers of a directory's log files.
func LogFiles(dir string) ([]int, error) { return logFiles(dir) }

// LoseMemtable leaves the state's database as Badger does when it could not make a memtable; mend
// brings it back.
func LoseMemtable(s *Store) (mend func()) {
	f := reflect.ValueOf(s.state.db).Elem().FieldByName("mt")
	mt := reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
	kept := reflect.New(f.Type()).Elem()
	kept.Set(mt)
	mt.SetZero()
	return func() { mt.Set(kept) }
}

// Replaced has the tables verified that compactions have replaced.
func Replaced(s *Store) { s.checkReplaced() }

// LevelZero is the number of tables in level 0 of the state.
func LevelZero(s *Store) int { return s.state.db.Levels()[0].NumTables }

// ScrubAll does so many turns of the scrubber's, as if no table had been verified for long.
func ScrubAll(s *Store, turns int) {
	for range turns {
		s.scrubOne(time.Now().Add(2 * scrubInterval))
	}
}

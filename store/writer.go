package store

import (
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// A Txn counts one entry for its end marker, and some bytes.
const (
	txnEntries  = 2
	txnOverhead = 64
)

// Writer commits batches to one database. One goroutine uses it at a time (the log actor, the apply actor, or one for
// both); the lock only makes a mistake harmless.
type Writer struct {
	store *Store
	d     *database

	mu      sync.Mutex
	failed  error
	entries []badger.Entry // reused from Txn to Txn
	unmet   int            // bytes written since the free space was last looked at
}

// Commit makes the batches durable and visible, in their order, and returns when they are: one Badger Txn with one sync
// for all of them, or as few as Badger's limit on a Txn allows. A Batch is never split. On an error none, or only the
// first ones, may have been committed: ErrBatchTooLarge and ErrDiskFull come before anything is written; after any other
// the writer fails for good with ErrFailed, because a later commit would bring what is left of this one to light.
func (w *Writer) Commit(batches []*Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	if err := w.admit(batches); err != nil {
		return err
	}
	for len(batches) > 0 {
		n, ops, size := w.group(batches)
		if ops > 0 {
			if err := w.commitTxn(batches[:n], ops); err != nil {
				w.failed = fmt.Errorf("%w: %w", ErrFailed, err)
				return w.failed
			}
			w.d.count.add(n, size, w.d.db.Opts().SyncWrites)
		}
		batches = batches[n:]
	}
	if seq, ok := w.d.seq.advanceDiscard(); ok {
		w.d.db.SetDiscardTs(seq)
	}
	return nil
}

// admit refuses what could not be written whole.
func (w *Writer) admit(batches []*Batch) error {
	maxBytes, maxLen, total := w.store.MaxBatchBytes(), w.store.MaxBatchLen(), 0
	inMemory, maxInMemoryValue := w.store.opts.InMemory, int(w.d.db.Opts().ValueThreshold)
	for _, b := range batches {
		if b.Size() > maxBytes || b.Len() > maxLen {
			return fmt.Errorf("%w: %d bytes in %d entries, the limits are %d and %d",
				ErrBatchTooLarge, b.Size(), b.Len(), maxBytes, maxLen)
		}
		if inMemory && b.value > maxInMemoryValue {
			return fmt.Errorf("%w: a value of %d bytes, in memory the limit is %d", ErrBatchTooLarge, b.value, maxInMemoryValue)
		}
		total += b.Size()
	}
	return w.store.checkReserve(w, total)
}

// group returns how many of the batches fit into one Txn, at least one, and their entries and bytes.
func (w *Writer) group(batches []*Batch) (n, ops, size int) {
	maxBytes, maxLen := w.store.MaxBatchBytes(), w.store.MaxBatchLen()
	for _, b := range batches {
		if n > 0 && (size+b.Size() > maxBytes || ops+b.Len() > maxLen) {
			break
		}
		n++
		ops += b.Len()
		size += b.Size()
	}
	return n, ops, size
}

// commitTxn writes the batches in one Txn at the next number and makes it visible.
func (w *Writer) commitTxn(batches []*Batch, ops int) error {
	seq := w.d.seq.begin()
	txn := w.d.db.NewTransactionAt(seq, true)
	defer txn.Discard()
	if cap(w.entries) < ops {
		w.entries = make([]badger.Entry, 0, ops+ops/2)
	}
	entries := w.entries[:0]
	defer func() { clear(entries) }()
	for _, b := range batches {
		for _, o := range b.ops {
			var err error
			if o.del {
				err = txn.Delete(o.key)
			} else {
				entries = append(entries, badger.Entry{Key: o.key, Value: o.value})
				err = txn.SetEntry(&entries[len(entries)-1])
			}
			if err != nil {
				return fmt.Errorf("add to transaction %d: %w", seq, err)
			}
		}
	}
	if err := txn.CommitAt(seq, nil); err != nil {
		return fmt.Errorf("commit transaction %d: %w", seq, err)
	}
	if msg := w.d.log.syncFailed.Load(); msg != nil {
		return fmt.Errorf("commit transaction %d: %s", seq, *msg)
	}
	if w.store.opts.SyncDelay > 0 {
		time.Sleep(w.store.opts.SyncDelay)
	}
	w.d.seq.finish(seq)
	return nil
}

// stop makes every later Commit return ErrClosed.
func (w *Writer) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = ErrClosed
}

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

// Writer commits batches to one database. The log actor uses it, and the reclaim worker when it fills a memtable.
type Writer struct {
	store *Store
	d     *database

	mu      sync.Mutex
	failed  error
	entries []badger.Entry // reused from Txn to Txn
	chunks  bool           // the database may hold long values
	drops   chunkDrops     // of the Txn under way
	unmet   int            // bytes written since the free space was last looked at
}

// Commit makes the batches visible, in their order, and durable unless all of them are lazy, and returns when they are:
// one Badger Txn for all of them, or as few as Badger's limit on a Txn allows, and one sync. A Batch is never split. What
// survives a power loss is a prefix of the batches that were ever committed, never less than up to the last sync.
//
// On an error none, or only the first batches, may have been committed: ErrBatchTooLarge and ErrDiskFull come before
// anything is written; after any other the writer fails for good with ErrFailed, because a later commit would bring what
// is left of this one to light.
func (w *Writer) Commit(batches []*Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	if err := w.admit(batches); err != nil {
		return err
	}
	if err := w.write(batches); err != nil {
		w.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		return w.failed
	}
	w.d.discard()
	return nil
}

// Sync makes everything durable that has been committed.
func (w *Writer) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	if err := w.sync(); err != nil {
		w.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		return w.failed
	}
	return nil
}

func (w *Writer) sync() error {
	if !w.d.durable.dirty {
		return nil
	}
	if err := w.d.durable.sync(); err != nil {
		return err
	}
	w.d.count.syncs.Add(1)
	if w.store.opts.SyncDelay > 0 {
		time.Sleep(w.store.opts.SyncDelay)
	}
	return nil
}

// write commits the batches in as few Txns as they take, and then makes them visible: after the sync, so that nobody
// reads what could still be lost, except what is lazy.
func (w *Writer) write(batches []*Batch) error {
	lazy, last := !w.store.opts.SeparateLog, uint64(0)
	for len(batches) > 0 {
		n, ops, size := w.group(batches)
		for _, b := range batches[:n] {
			lazy = lazy && (b.lazy || b.Len() == 0)
		}
		if ops > 0 {
			seq, err := w.commitTxn(batches[:n], ops)
			if err != nil {
				return err
			}
			last = seq
			w.d.count.add(n, size)
		}
		batches = batches[n:]
	}
	if !lazy {
		if err := w.sync(); err != nil {
			return err
		}
	}
	if last > 0 {
		w.d.seq.finish(last)
	}
	return nil
}

// admit refuses what could not be written whole.
func (w *Writer) admit(batches []*Batch) error {
	maxBytes, maxLen, total := w.store.MaxBatchBytes(), w.store.MaxBatchLen(), 0
	for _, b := range batches {
		if b.Size() > maxBytes || b.entries > maxLen {
			return fmt.Errorf("%w: %d bytes in %d entries, the limits are %d and %d",
				ErrBatchTooLarge, b.Size(), b.entries, maxBytes, maxLen)
		}
		total += b.Size()
	}
	return w.store.checkReserve(w, total)
}

// group returns how many of the batches fit into one Txn, at least one, and their entries and bytes.
func (w *Writer) group(batches []*Batch) (n, entries, size int) {
	maxBytes, maxLen := w.store.MaxBatchBytes(), w.store.MaxBatchLen()
	for _, b := range batches {
		if n > 0 && (size+b.Size() > maxBytes || entries+b.entries > maxLen) {
			break
		}
		n++
		entries += b.entries
		size += b.Size()
	}
	return n, entries, size
}

// commitTxn writes the batches, with so many entries, in one Txn at the next number. Chunks that they leave behind and
// that it cannot take as well go in Txns of their own: nothing refers to them any more.
func (w *Writer) commitTxn(batches []*Batch, entries int) (seq uint64, err error) {
	if cap(w.entries) < entries {
		w.entries = make([]badger.Entry, 0, entries+entries/2)
	}
	w.entries = w.entries[:0]
	defer func() { clear(w.entries) }()
	seq, err = w.transact(func(txn *badger.Txn) (int, int, error) {
		bytes := 0
		for _, b := range batches {
			for i := range b.ops {
				if err := w.add(txn, &b.ops[i]); err != nil {
					return 0, 0, err
				}
			}
			bytes += b.size
		}
		n, m, err := w.drops.add(txn)
		return entries + n, bytes + m, err
	})
	if err == nil {
		w.heat(batches, seq)
	}
	for err == nil && len(w.drops) > 0 {
		seq, err = w.transact(w.drops.add)
	}
	return seq, err
}

// heat brings the cells that are held in memory up to date.
func (w *Writer) heat(batches []*Batch, seq uint64) {
	for _, b := range batches {
		for i := range b.ops {
			if isHot(b.ops[i].key) {
				w.d.hot.wrote(&b.ops[i], seq)
			}
		}
	}
}

// transact runs one Txn at the next number. fill adds its entries and returns their number and bytes.
func (w *Writer) transact(fill func(txn *badger.Txn) (entries, bytes int, err error)) (uint64, error) {
	if err := w.d.durable.before(); err != nil {
		return 0, err
	}
	seq := w.d.seq.begin()
	txn := w.d.db.NewTransactionAt(seq, true)
	defer txn.Discard()
	entries, bytes, err := fill(txn)
	if err != nil {
		return 0, fmt.Errorf("add to transaction %d: %w", seq, err)
	}
	if err := txn.CommitAt(seq, nil); err != nil {
		return 0, fmt.Errorf("commit transaction %d: %w", seq, err)
	}
	return seq, w.d.durable.after(usage(entries, bytes))
}

// add adds one put or delete to the Txn, with the chunks of a long value, and notes those of the value that it replaces.
func (w *Writer) add(txn *badger.Txn, o *op) error {
	n := chunksOf(len(o.value))
	w.chunks = w.chunks || n > 1
	w.d.dead.Add(deadBy(txn, o))
	if w.chunks && mayBeLong(o.key) {
		before := len(w.drops)
		if err := w.drops.find(txn, o.key, n); err != nil {
			return err
		}
		w.d.dead.Add(int64(len(w.drops)-before) * chunkBytes)
	}
	switch {
	case o.del:
		return txn.Delete(o.key)
	case n == 1:
		return w.set(txn, o.key, o.value, 0)
	}
	if err := w.set(txn, o.key, chunkHead(o.value), chunkedMeta); err != nil {
		return err
	}
	for i := 1; i < n; i++ {
		chunk := appendChunkKey(nil, o.key, i)
		delete(w.drops, string(chunk))
		part := o.value[i*chunkBytes : min((i+1)*chunkBytes, len(o.value))]
		if err := w.set(txn, chunk, part, 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) set(txn *badger.Txn, key, value []byte, meta byte) error {
	w.entries = append(w.entries, badger.Entry{Key: key, Value: value, UserMeta: meta})
	return txn.SetEntry(&w.entries[len(w.entries)-1])
}

// stop makes every later Commit return ErrClosed.
func (w *Writer) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.failed
	w.failed = ErrClosed
	if failed != nil {
		return nil
	}
	return w.sync()
}

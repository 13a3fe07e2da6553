package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// A Txn counts one entry for its end marker, and some bytes.
const (
	txnEntries  = 2
	txnOverhead = 64
)

// Writer commits batches to the state. The state actor uses it, and the reclaim worker
// when it fills a memtable.
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

// Commit makes the batches visible, in their order, and returns when they are: one Badger
// Txn for all of them, or as few as Badger's limit on a Txn allows. A Batch that is
// larger than a Txn goes in several (large.go). They are durable with the next
// checkpoint; what a crash takes before is applied again from the Raft log, so a batch
// with effects must come from an entry of it that is durable. Records, and what begins or
// ends a replica, are durable when Commit returns.
//
// On an error none, or only the first batches, may have been committed: ErrBatchTooLarge
// and ErrDiskFull mean that the same batches may be committed again, and must be where
// they change the log, which knows nothing of them yet; after any other the writer fails
// for good with ErrFailed, because a later commit would bring what is left of this one to
// light.
func (w *Writer) Commit(batches []*Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	if err := w.admit(batches); err != nil {
		return err
	}
	if err := w.commitAdmitted(batches); err != nil {
		if !errors.Is(err, ErrDiskFull) {
			err = w.failLocked(err)
		}
		return err
	}
	return nil
}

func (w *Writer) commitAdmitted(batches []*Batch) error {
	if slices.ContainsFunc(batches, func(b *Batch) bool { return len(b.log) > 0 }) {
		return w.store.commitWithLog(batches, w.write)
	}
	if err := w.write(batches); err != nil {
		return err
	}
	w.store.checkpoints.note(batches)
	return nil
}

// fail makes every later Commit return the error, unless one does already, and returns it.
func (w *Writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failLocked(err)
}

func (w *Writer) failLocked(err error) error {
	switch {
	case w.failed != nil:
	case errors.Is(err, ErrFailed):
		w.failed = err
	default:
		w.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return w.failed
}

// write commits the batches in as few Txns as they take, and then makes them visible.
func (w *Writer) write(batches []*Batch) error {
	last := uint64(0)
	for len(batches) > 0 {
		n, ops, size := w.group(batches)
		if ops > 0 {
			seq, err := w.commit(batches[:n], ops)
			if err != nil {
				return err
			}
			last = seq
			w.d.count.add(n, size)
		}
		batches = batches[n:]
	}
	if last > 0 {
		w.d.seq.finish(last)
		w.d.discard()
	}
	return nil
}

// admit refuses what could not be written whole.
func (w *Writer) admit(batches []*Batch) error {
	total := 0
	for _, b := range batches {
		if err := w.Check(b); err != nil {
			return err
		}
		total += b.Size()
	}
	return w.store.checkReserve(w, total)
}

// Check returns ErrBatchTooLarge, wrapped, if Commit would refuse the Batch however much
// room there is. Who commits batches of several owners at once asks first, so that one
// owner's batch is not the others' error. Any goroutine may call it.
func (w *Writer) Check(b *Batch) error {
	if b.Size() > maxBatchBytes || b.entries > maxBatchLen {
		return fmt.Errorf("%w: %d bytes in %d entries, the limits are %d and %d",
			ErrBatchTooLarge, b.Size(), b.entries, maxBatchBytes, maxBatchLen)
	}
	if w.large(b) {
		return w.divisible(b)
	}
	return nil
}

// txnLimits are the bytes and entries of batches that one Txn takes.
func (w *Writer) txnLimits() (bytes, entries int) {
	return int(w.d.db.MaxBatchSize()) - txnOverhead, int(w.d.db.MaxBatchCount()) - txnEntries
}

// large reports whether the Batch needs more than one Txn.
func (w *Writer) large(b *Batch) bool {
	maxBytes, maxLen := w.txnLimits()
	return b.Size() > maxBytes || b.entries > maxLen
}

// divisible refuses a Batch of which one entry alone is more than a Txn takes: with
// chunks of chunkBytes, only its key can be that long, and only with the smallest
// memtables.
func (w *Writer) divisible(b *Batch) error {
	const spare = 64 // what Badger counts for an entry, and the varint of a chunk's head
	maxBytes, _ := w.txnLimits()
	for i := range b.ops {
		if n := len(b.ops[i].key) + min(len(b.ops[i].value), chunkBytes) + spare; n > maxBytes {
			return fmt.Errorf("%w: an entry of %d bytes, the limit is %d", ErrBatchTooLarge, n,
				maxBytes)
		}
	}
	return nil
}

// group returns how many of the batches fit into one Txn, at least one, and their entries
// and bytes.
func (w *Writer) group(batches []*Batch) (n, entries, size int) {
	maxBytes, maxLen := w.txnLimits()
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

// commit writes a group of batches. Chunks that they leave behind and that its Txns
// cannot take as well go in Txns of their own: nothing refers to them any more.
func (w *Writer) commit(group []*Batch, entries int) (seq uint64, err error) {
	if w.large(group[0]) {
		seq, err = w.commitLarge(group[0])
	} else {
		seq, err = w.commitTxn(group, entries)
	}
	for err == nil && len(w.drops) > 0 {
		seq, err = w.transact(w.drops.add)
	}
	return seq, err
}

// reserve makes room for so many entries: a Txn refers to them where they are.
func (w *Writer) reserve(entries int) {
	if cap(w.entries) < entries {
		w.entries = make([]badger.Entry, 0, entries+entries/2)
	}
	w.entries = w.entries[:0]
}

// commitTxn writes the batches, with so many entries, in one Txn at the next number, and
// deletes as many left chunks as fit.
func (w *Writer) commitTxn(batches []*Batch, entries int) (seq uint64, err error) {
	w.reserve(entries)
	defer func() { clear(w.entries) }()
	seq, err = w.transact(func(txn *badger.Txn) error {
		for _, b := range batches {
			for i := range b.ops {
				if err := w.add(txn, &b.ops[i]); err != nil {
					return err
				}
			}
		}
		return w.drops.add(txn)
	})
	if err == nil {
		w.heat(batches, seq)
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

// transact runs one Txn at the next number. fill adds its entries.
func (w *Writer) transact(fill func(txn *badger.Txn) error) (uint64, error) {
	seq, txn, err := w.begin()
	if err != nil {
		return 0, err
	}
	defer txn.Discard()
	if err := fill(txn); err != nil {
		return 0, fmt.Errorf("add to transaction %d: %w", seq, err)
	}
	if err := txn.CommitAt(seq, nil); err != nil {
		return 0, fmt.Errorf("commit transaction %d: %w", seq, err)
	}
	return seq, nil
}

// begin opens a Txn at the next number.
func (w *Writer) begin() (uint64, *badger.Txn, error) {
	if w.store.opts.beforeTxn != nil {
		if err := w.store.opts.beforeTxn(); err != nil {
			return 0, nil, err
		}
	}
	seq := w.d.seq.begin()
	return seq, w.d.db.NewTransactionAt(seq, true), nil
}

// add adds one put or delete to the Txn, with the chunks of a long value, and notes those
// of the value that it replaces.
func (w *Writer) add(txn transaction, o *op) error {
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

func (w *Writer) set(txn transaction, key, value []byte, meta byte) error {
	w.entries = append(w.entries, badger.Entry{Key: key, Value: value, UserMeta: meta})
	return txn.SetEntry(&w.entries[len(w.entries)-1])
}

// stop makes every later Commit return ErrClosed. failed is the error that has stopped it already.
func (w *Writer) stop() (failed error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	failed, w.failed = w.failed, ErrClosed
	return failed
}

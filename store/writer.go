package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// The limits of one Batch, whatever the size of a memtable: 8 MiB of cells (design section
// 2) in a Raft entry or as effects, with their keys and what the store adds.
const (
	MaxBatchBytes = 10 << 20 // maximum of Batch.Size
	MaxBatchLen   = 1 << 17  // maximum of Batch.Len
)

// Writer commits batches to the state. Its callers are the state actor, package join for the node's
// own records, `percolator recover`, and Reclaim and Compact when they fill a memtable.
//
// A Badger Txn holds at most 15 % of a memtable, which can be less than the limit of a Batch. So a
// Commit writes its batches in as many Txns as they need, regardless of their boundaries. Each
// batch is nevertheless atomic: for readers because the sequence makes none of the numbers
// visible before the last Txn has committed, and after a crash because the batch's Raft entry is
// applied again.
type Writer struct {
	store *Store
	d     *database

	// committing is held by a Commit until its changes of the log are durable, mu only during
	// writes to Badger. They are acquired in the order committing, checkpoints.taking, mu.
	committing      sync.Mutex
	sinceSpaceCheck int // bytes written since the last check of the free space

	mu      sync.Mutex
	failed  error
	locks   locks
	chunks  bool                // the database may hold long values
	drops   map[string]struct{} // keys of chunks that this Commit leaves without a head
	entries []badger.Entry      // entries of this Commit; the memory is kept for the next

	txn  *badger.Txn // the open Txn, to which put adds entries
	seq  uint64      // the sequence number of txn
	txns int         // number of Txns committed but not yet visible
}

// Commit writes the batches in order and returns when they are visible. They become durable with
// the next checkpoint. After a crash the Raft entries since the last checkpoint are applied
// again, so a batch with effects must come from a durable entry. Records, and the begin or end of
// a replica, are durable when Commit returns.
//
// After ErrBatchTooLarge nothing was written. After ErrDiskFull the same batches may be committed
// again, and must be if they change the log, which does not contain these changes yet. After any
// other error but ErrClosed the writer fails permanently with ErrFailed, because a later commit
// would make the remains of this one visible.
func (w *Writer) Commit(batches []*Batch) error {
	w.committing.Lock()
	defer w.committing.Unlock()
	if err := w.err(); err != nil {
		return err
	}
	if err := w.admit(batches); err != nil {
		return err
	}
	if err := w.commitAdmitted(batches); err != nil {
		if !errors.Is(err, ErrDiskFull) {
			err = w.fail(err)
		}
		return err
	}
	return nil
}

// err returns the error that every Commit returns, or nil.
func (w *Writer) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *Writer) commitAdmitted(batches []*Batch) error {
	if slices.ContainsFunc(batches, func(b *Batch) bool { return len(b.log) > 0 || b.barrier }) {
		return w.store.commitWithLog(batches, w.write)
	}
	if err := w.write(batches); err != nil {
		return err
	}
	w.store.checkpoints.note(batches)
	return nil
}

// fail makes every later Commit return err, wrapped in ErrFailed, unless the writer failed before.
// It returns the error that they return.
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

// write commits the batches, in as many Txns as they need, and then makes them visible. A
// Txn refers to its entries in place. Locks may be kept in memory instead (locks.go). After an error
// the writer has failed. committing is held, except during Open.
func (w *Writer) write(batches []*Batch) error {
	entries, size := 0, 0
	for _, b := range batches {
		entries += b.entries
		size += b.Size()
	}
	if entries == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	err := w.transact(entries, func() error { return w.addAll(batches) })
	if err != nil {
		return w.failLocked(err)
	}
	for _, b := range batches { // before the sequence number is visible, see hotCells
		for i := range b.ops {
			if isHot(b.ops[i].key) {
				w.d.hot.wrote(&b.ops[i], w.seq)
			}
		}
	}
	w.d.count.batches.Add(uint64(len(batches)))
	w.d.count.bytes.Add(uint64(size))
	w.finish()
	if w.locks.full() {
		return w.flushLocked()
	}
	return nil
}

// transact calls add, which adds at most this many entries, and commits them in as many Txns as
// they need.
func (w *Writer) transact(entries int, add func() error) error {
	w.txns, w.entries = 0, slices.Grow(w.entries[:0], entries)
	defer func() { clear(w.entries) }()
	if err := w.begin(); err != nil {
		return err
	}
	defer func() { w.txn.Discard() }()
	if err := add(); err != nil {
		return fmt.Errorf("add to Badger's Txn %d: %w", w.seq, err)
	}
	return w.commitTxn()
}

// finish makes the committed Txns visible.
func (w *Writer) finish() {
	w.d.count.txns.Add(uint64(w.txns))
	w.d.seq.finish(w.seq)
	w.d.discard()
}

// addAll adds the batches, and the deletion of the chunks that nothing refers to afterwards.
func (w *Writer) addAll(batches []*Batch) error {
	for _, b := range batches {
		for i := range b.ops {
			if isLock(b.ops[i].key) && w.locks.keep(&b.ops[i]) {
				continue
			}
			if err := w.add(&b.ops[i]); err != nil {
				return err
			}
		}
	}
	for chunk := range w.drops {
		if err := w.delete([]byte(chunk)); err != nil {
			return err
		}
	}
	clear(w.drops)
	return nil
}

// admit refuses batches that could not be written as a whole.
func (w *Writer) admit(batches []*Batch) error {
	total := 0
	for _, b := range batches {
		if err := w.check(b); err != nil {
			return err
		}
		total += b.Size()
	}
	return w.checkReserve(total)
}

// check returns ErrBatchTooLarge, wrapped, if the batch is over the limits, or if a single
// entry exceeds a Txn. As values are cut into chunks, that requires a very long key and the
// smallest memtables.
func (w *Writer) check(b *Batch) error {
	if b.Size() > MaxBatchBytes || b.entries > MaxBatchLen {
		return fmt.Errorf("%w: %d bytes in %d entries, the limits are %d and %d",
			ErrBatchTooLarge, b.Size(), b.entries, MaxBatchBytes, MaxBatchLen)
	}
	const spare = 128 // for a Txn's end marker, Badger's own count and the varint in a head
	limit := int(w.d.db.MaxBatchSize()) - spare
	if b.Size() <= limit {
		return nil
	}
	for i := range b.ops {
		if n := len(b.ops[i].key) + min(len(b.ops[i].value), chunkBytes); n > limit {
			return fmt.Errorf("%w: an entry of %d bytes, the limit is %d", ErrBatchTooLarge, n,
				limit)
		}
	}
	return nil
}

// begin opens a Txn at the next number.
func (w *Writer) begin() error {
	if w.store.opts.beforeTxn != nil {
		if err := w.store.opts.beforeTxn(); err != nil {
			return err
		}
	}
	w.seq = w.d.seq.begin()
	w.txn = w.d.db.NewTransactionAt(w.seq, true)
	return nil
}

func (w *Writer) commitTxn() error {
	if err := w.txn.CommitAt(w.seq, nil); err != nil {
		return fmt.Errorf("commit Badger's Txn %d: %w", w.seq, err)
	}
	w.txns++
	return nil
}

// add adds one put or delete, with the chunks of a long value, and records the chunks of
// the value that it replaces.
func (w *Writer) add(o *op) error {
	n := chunksOf(len(o.value))
	w.chunks = w.chunks || n > 1
	w.d.dead.Add(deadBy(w.txn, o))
	if w.chunks && mayBeLong(o.key) {
		before := len(w.drops)
		if err := w.findChunks(o.key, n); err != nil {
			return err
		}
		w.d.dead.Add(int64(len(w.drops)-before) * chunkBytes)
	}
	switch {
	case o.del:
		return w.delete(o.key)
	case n == 1:
		return w.set(o.key, o.value, 0)
	}
	if err := w.set(o.key, chunkHead(o.value), chunkedMeta); err != nil {
		return err
	}
	for i := 1; i < n; i++ {
		chunk := chunkKey(o.key, i)
		delete(w.drops, string(chunk))
		part := o.value[i*chunkBytes : min((i+1)*chunkBytes, len(o.value))]
		if err := w.set(chunk, part, 0); err != nil {
			return err
		}
	}
	return nil
}

// findChunks records chunk `from` and all later ones of the key's present value, from the
// database or this Commit. They are deleted at the Commit's end, because a later put may reuse
// their keys.
func (w *Writer) findChunks(key []byte, from int) error {
	for i := from; ; i++ {
		chunk := chunkKey(key, i)
		switch _, err := w.txn.Get(chunk); {
		case errors.Is(err, badger.ErrKeyNotFound):
			return nil
		case err != nil:
			return err
		}
		w.drops[string(chunk)] = struct{}{}
	}
}

func (w *Writer) set(key, value []byte, meta byte) error {
	w.entries = append(w.entries, badger.Entry{Key: key, Value: value, UserMeta: meta})
	e := &w.entries[len(w.entries)-1]
	return w.put(func() error { return w.txn.SetEntry(e) })
}

func (w *Writer) delete(key []byte) error {
	return w.put(func() error { return w.txn.Delete(key) })
}

// put adds one entry to the Txn, or to the next one if this one is full. The next one sees the
// writes of the previous ones.
func (w *Writer) put(add func() error) error {
	err := add()
	if !errors.Is(err, badger.ErrTxnTooBig) {
		return err
	}
	if err := w.commitTxn(); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	return add()
}

// stop makes every later Commit return ErrClosed. failed is the error that Commit returned before;
// nil if none.
func (w *Writer) stop() (failed error) {
	w.committing.Lock()
	defer w.committing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	failed, w.failed = w.failed, ErrClosed
	return failed
}

// spaceCheckBytes is the number of bytes that the writer commits between two checks of the
// free space.
const spaceCheckBytes = 4 << 20

// checkReserve refuses n more bytes if they would use part of the reserve, and any number while a
// memtable or table might not be able to create its file. It looks only every spaceCheckBytes,
// unless writes are blocked. committing is held.
func (w *Writer) checkReserve(n int) error {
	w.sinceSpaceCheck += n
	if w.sinceSpaceCheck < spaceCheckBytes && w.store.space.WriteBlocked() == nil {
		return nil
	}
	w.sinceSpaceCheck = 0
	return w.store.space.RoomInReserve(uint64(n))
}

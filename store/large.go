package store

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/broken"
)

// Badger's largest Txn is 15 % of a memtable, and memtables are smaller than what one Batch may hold. A Batch that no Txn
// takes is written in several, and is whole all the same (docs/adr/0015):
//
//   - For who reads, because the sequence shows its numbers only when all of its Txns have returned.
//   - After a crash, because the first Txn puts unfinishedKey and the last deletes it. What survives is a prefix of the Txns,
//     so a marker that Open finds is that of the last Batch there is, all versions from the marker's own on are parts of it,
//     and those below are what was before, none of them discarded, as no part was ever visible. Open puts those back.
//
// Putting back may be cut short as well: the marker goes last, so the next Open finds the same number and does it again.

// unfinishedPrefix is the one key that stands while the Txns of a Batch are written.
const unfinishedPrefix = 'u'

var unfinishedKey = []byte{unfinishedPrefix}

// What Commit takes in one Batch, whatever the memtable: 8 MiB of cells (design section 2) in a Raft entry or as effects, with
// their keys and what the store adds.
const (
	maxBatchBytes = 10 << 20
	maxBatchLen   = 1 << 17
)

// transaction is a Badger Txn, or as many of them as it takes.
type transaction interface {
	Get(key []byte) (*badger.Item, error)
	SetEntry(e *badger.Entry) error
	Delete(key []byte) error
}

// parts are Txns one after the other: what does not fit into one goes to the next. Each reads what those before have written.
type parts struct {
	w    *Writer
	txn  *badger.Txn // under way
	seq  uint64      // of txn
	size int64       // of txn, as durable counts
	txns int         // committed
}

func (w *Writer) newParts() (*parts, error) {
	p := &parts{w: w}
	return p, p.begin()
}

func (p *parts) begin() error {
	seq, txn, err := p.w.begin()
	if err != nil {
		return err
	}
	p.seq, p.txn, p.size = seq, txn, usage(0, 0)
	return nil
}

func (p *parts) commit() error {
	if err := p.txn.CommitAt(p.seq, nil); err != nil {
		return fmt.Errorf("commit transaction %d: %w", p.seq, err)
	}
	p.txns++
	return p.w.d.durable.after(p.size)
}

// discard ends the Txn under way, if it was not committed.
func (p *parts) discard() { p.txn.Discard() }

func (p *parts) Get(key []byte) (*badger.Item, error) { return p.txn.Get(key) }

func (p *parts) SetEntry(e *badger.Entry) error {
	return p.put(len(e.Key)+len(e.Value), func() error { return p.txn.SetEntry(e) })
}

func (p *parts) Delete(key []byte) error {
	return p.put(len(key), func() error { return p.txn.Delete(key) })
}

// put adds one entry of so many bytes, to the next Txn if this one is full.
func (p *parts) put(n int, add func() error) error {
	err := add()
	if errors.Is(err, badger.ErrTxnTooBig) {
		if err := p.commit(); err != nil {
			return err
		}
		if err := p.begin(); err != nil {
			return err
		}
		err = add()
	}
	p.size += usage(1, n) - usage(0, 0)
	return err
}

// commitLarge writes a Batch in as many Txns as it takes, and returns the number of the last.
func (w *Writer) commitLarge(b *Batch) (uint64, error) {
	p, err := w.newParts()
	if err != nil {
		return 0, err
	}
	defer func() { p.discard() }()
	w.reserve(b.entries + 1)
	defer func() { clear(w.entries) }()
	if !broken.UnmarkedBatch {
		if err := w.set(p, unfinishedKey, []byte{plainTag}, 0); err != nil {
			return 0, err
		}
	}
	for i := range b.ops {
		if err := w.add(p, &b.ops[i]); err != nil {
			return 0, fmt.Errorf("add to transaction %d: %w", p.seq, err)
		}
	}
	if err := p.Delete(unfinishedKey); err != nil {
		return 0, err
	}
	if err := p.commit(); err != nil {
		return 0, err
	}
	w.heat([]*Batch{b}, p.seq) // of none of these numbers can a Snap be before it is that of the last
	w.d.count.txns.Add(uint64(p.txns - 1))
	return p.seq, nil
}

// rollBack undoes the Batch that a crash cut short, if there is one. Before anything is read or written.
func (w *Writer) rollBack() error {
	now := w.d.db.NewTransactionAt(w.d.seq.visible, false)
	defer now.Discard()
	marker, err := now.Get(unfinishedKey)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	began := marker.Version()
	w.store.opts.Logger.Info("store: undoing a batch that was cut short", "sequence", began)
	before := w.d.db.NewTransactionAt(began-1, false)
	defer before.Discard()
	p, err := w.newParts()
	if err != nil {
		return err
	}
	defer func() { p.discard() }()
	it := now.NewIterator(badger.IteratorOptions{AllVersions: true, SinceTs: began - 1})
	defer it.Close()
	var last []byte
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().Key()
		if bytes.Equal(key, last) || bytes.Equal(key, unfinishedKey) {
			continue
		}
		last = bytes.Clone(key)
		if err := putBack(p, before, last); err != nil {
			return fmt.Errorf("undo what was written to key %q: %w", last, err)
		}
	}
	if err := errors.Join(p.Delete(unfinishedKey), p.commit(), w.sync()); err != nil {
		return err
	}
	w.d.seq.finish(p.seq)
	return nil
}

// putBack writes what the key held before.
func putBack(p *parts, before *badger.Txn, key []byte) error {
	item, err := before.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return p.Delete(key)
	}
	if err != nil {
		return err
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return err
	}
	return p.SetEntry(&badger.Entry{Key: key, Value: value, UserMeta: item.UserMeta()})
}

package store

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// Badger's largest Txn is 15 % of a memtable, and memtables are smaller than what one
// Batch may hold. A Batch that no Txn takes is written in several, and is whole all the
// same: for who reads, because the sequence shows its numbers only when all of its Txns
// have returned; after a crash, because the entry that it comes from is applied once
// more.

// What Commit takes in one Batch, whatever the memtable: 8 MiB of cells (design section
// 2) in a Raft entry or as effects, with their keys and what the store adds.
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

// parts are Txns one after the other: what does not fit into one goes to the next. Each
// reads what those before have written.
type parts struct {
	w    *Writer
	txn  *badger.Txn // under way
	seq  uint64      // of txn
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
	p.seq, p.txn = seq, txn
	return nil
}

func (p *parts) commit() error {
	if err := p.txn.CommitAt(p.seq, nil); err != nil {
		return fmt.Errorf("commit transaction %d: %w", p.seq, err)
	}
	p.txns++
	return nil
}

// discard ends the Txn under way, if it was not committed.
func (p *parts) discard() { p.txn.Discard() }

func (p *parts) Get(key []byte) (*badger.Item, error) { return p.txn.Get(key) }

func (p *parts) SetEntry(e *badger.Entry) error {
	return p.put(func() error { return p.txn.SetEntry(e) })
}

func (p *parts) Delete(key []byte) error {
	return p.put(func() error { return p.txn.Delete(key) })
}

// put adds one entry, to the next Txn if this one is full.
func (p *parts) put(add func() error) error {
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
	return err
}

// commitLarge writes a Batch in as many Txns as it takes, and returns the number of the last.
func (w *Writer) commitLarge(b *Batch) (uint64, error) {
	p, err := w.newParts()
	if err != nil {
		return 0, err
	}
	defer func() { p.discard() }()
	w.reserve(b.entries)
	defer func() { clear(w.entries) }()
	for i := range b.ops {
		if err := w.add(p, &b.ops[i]); err != nil {
			return 0, fmt.Errorf("add to transaction %d: %w", p.seq, err)
		}
	}
	if err := p.commit(); err != nil {
		return 0, err
	}
	// of none of these numbers can a Snap be before it is that of the last
	w.heat([]*Batch{b}, p.seq)
	w.d.count.txns.Add(uint64(p.txns - 1))
	return p.seq, nil
}

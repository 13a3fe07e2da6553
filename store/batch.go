package store

// Batch, which the evaluating code fills on its own goroutine and then passes to the state
// actor. In addition to puts and deletes a Batch lists changes for the next checkpoint and
// for the log; Writer.Commit passes these on.

import (
	"encoding/binary"
	"slices"

	"github.com/percolator-go/percolator/store/raftlog"
)

// entryOverhead is Badger's overhead for an entry in addition to its key and value: two bytes of
// meta and ten for the version.
const entryOverhead = 12

// Batch is a list of puts and deletes that become visible together or not at all. For one key
// the last one wins. It belongs to one goroutine at a time and must not change during Commit.
// The zero Batch is empty.
type Batch struct {
	ops     []op
	size    int
	entries int // entries in Badger, where a long value has several

	tablets []tabletChange // changes of tablets' states and Applied records, for the next checkpoint
	log     []logChange    // changes of the log, durable when the batch is committed
	barrier bool           // also makes everything committed before the batch durable
}

// tabletChange changes a tablet's state or Applied record, or ends both.
type tabletChange struct {
	kind    tabletChangeKind
	tablet  uint64
	state   []byte  // if kind is newState: the tablet's state
	applied Applied // if kind is newApplied: the tablet's record
}

type tabletChangeKind int

const (
	newState tabletChangeKind = iota
	newApplied
	tabletGone
)

// logChange is a change of the log that belongs to a batch.
type logChange struct {
	kind   logChangeKind
	tablet uint64
	at     raftlog.Position // if kind is logBegin: where the log begins
	key    string           // if kind is logNote: the note's key
	note   []byte
}

type logChangeKind int

const (
	logBegin logChangeKind = iota
	logDestroy
	logNote
)

type op struct {
	key, value []byte
	del        bool
}

// Grow reserves space for n+1 more puts and deletes.
func (b *Batch) Grow(n int) { b.ops = slices.Grow(b.ops, n+1) }

// Put adds a put. The batch keeps key and value; neither may change until its Commit has
// returned.
func (b *Batch) Put(key, value []byte) {
	b.ops = append(b.ops, op{key: key, value: value})
	size, entries := Cost(key, value)
	b.size += size
	b.entries += entries
}

// Cost returns the amounts that a put counts against MaxBatchBytes and MaxBatchLen. A delete counts
// like a put without a value.
func Cost(key, value []byte) (size, entries int) {
	size, entries = len(key)+len(value)+entryOverhead, chunksOf(len(value))
	if entries > 1 {
		size += binary.MaxVarintLen32 + (entries-1)*(len(key)+chunkKeyOverhead+entryOverhead)
	}
	return size, entries
}

// Delete adds a delete. The batch keeps key.
func (b *Batch) Delete(key []byte) {
	b.ops = append(b.ops, op{key: key, del: true})
	b.size += len(key) + entryOverhead
	b.entries++
}

// PutTabletState sets the opaque state of a tablet, such as its range and epoch (design
// section 3). It copies state.
func (b *Batch) PutTabletState(id uint64, state []byte) {
	value := append([]byte{plainTag}, state...)
	b.Put(appendOwnKey(nil, tabletPrefix, id), value)
	b.tablets = append(b.tablets, tabletChange{kind: newState, tablet: id, state: value[1:]})
}

// PutRecord sets a small value that is durable when Commit returns. An empty record deletes
// it. Snap.Record reads it. The batch keeps record.
func (b *Batch) PutRecord(name string, record []byte) {
	b.putRecord(append([]byte{recordPrefix}, name...), record)
}

// putRecord sets or deletes a key that is also a note in the log.
func (b *Batch) putRecord(key, record []byte) {
	if len(record) == 0 {
		b.Delete(key)
	} else {
		b.Put(key, record)
	}
	b.log = append(b.log, logChange{kind: logNote, key: string(key), note: record})
}

// Barrier makes the batch, and everything committed before it, durable before its Commit returns.
// It costs a checkpoint.
func (b *Batch) Barrier() { b.barrier = true }

// Size returns the bytes counted against MaxBatchBytes: keys, values and overhead.
func (b *Batch) Size() int { return b.size }

// Len returns the number counted against MaxBatchLen: puts and deletes, with long values counted
// several times.
func (b *Batch) Len() int { return b.entries }

package store

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store/raftlog"
)

// entryOverhead is what Badger adds to an entry's key and value when it counts: two bytes
// of meta, ten for the version.
const entryOverhead = 12

// arenaBytes is the size of the first slab that a Batch encodes into; later ones double
// up to maxArenaBytes.
const (
	arenaBytes    = 1 << 7
	maxArenaBytes = 64 << 10
)

// Batch is a list of puts and deletes that become visible together or not at all. Later
// ones win. It belongs to one goroutine at a time and must not change between Commit's
// call and return. The zero Batch is empty.
type Batch struct {
	ops     []op
	size    int
	entries int // in Badger: a long value takes several
	arena   []byte

	tablets []tabletChange // what is said of tablets, for the next checkpoint
	log     []logChange    // what becomes durable in the log when the batch is committed ...
	barrier bool           // ... and everything that was committed before
}

// tabletChange changes a tablet's figures.
type tabletChange struct {
	kind    tabletChangeKind
	tablet  uint64
	state   []byte  // of a newState
	applied Applied // of a newApplied
}

type tabletChangeKind int

const (
	newState tabletChangeKind = iota
	newApplied
	tabletGone
)

// logChange is something that the log is told with a batch.
type logChange struct {
	kind   logChangeKind
	tablet uint64
	at     raftlog.Position // of a logBegin
	key    string           // of a logNote
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

// Grow makes room for that many more puts and deletes, and one beside them.
func (b *Batch) Grow(n int) { b.ops = slices.Grow(b.ops, n+1) }

// Put adds a put. The batch keeps key and value; neither may change until its Commit has
// returned, or Reset.
func (b *Batch) Put(key, value []byte) {
	b.ops = append(b.ops, op{key: key, value: value})
	size, entries := Cost(key, value)
	b.size += size
	b.entries += entries
}

// Cost is what a put counts against MaxBatchBytes and MaxBatchLen; that of a delete is
// the same without the value.
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

// PutMutation adds one effect of the rules, encoded into memory of the batch: m may be
// reused at once.
func (b *Batch) PutMutation(m *mvcc.Mutation) {
	kb, vb := m.Cell.KeyBytes(), 0
	if !m.Delete {
		vb = valueBytes(m)
	}
	buf := b.room(kb + vb)
	key := AppendKey(buf, m.Group, m.Cell, m.TS)
	if m.Delete {
		b.keep(key)
		b.Delete(key)
		return
	}
	all := appendValue(key, m)
	b.keep(all)
	b.Put(all[:len(key):len(key)], all[len(key):])
}

// PutTabletState sets the opaque state of a tablet: its range, epoch, applied index and
// so on (design section 3). state is copied.
func (b *Batch) PutTabletState(id uint64, state []byte) {
	key := appendTabletKey(b.room(1+8+1+len(state)), id)
	all := append(append(key, plainTag), state...)
	b.keep(all)
	b.Put(all[:len(key):len(key)], all[len(key):])
	b.tablets = append(b.tablets, tabletChange{
		kind: newState, tablet: id, state: bytes.Clone(state),
	})
}

// PutRecord sets a small value that must not be lost: it is durable when Commit returns.
// Empty: there is none. Snap.Record reads it. It keeps record.
func (b *Batch) PutRecord(name string, record []byte) {
	b.putRecord(append([]byte{recordPrefix}, name...), record)
}

// putRecord puts a key that is a note in the log as well.
func (b *Batch) putRecord(key, record []byte) {
	if len(record) == 0 {
		b.Delete(key)
	} else {
		b.Put(key, record)
	}
	b.log = append(b.log, logChange{kind: logNote, key: string(key), note: record})
}

// Size is what the batch counts against Store.MaxBatchBytes, in bytes: keys, values and overhead.
func (b *Batch) Size() int { return b.size }

// Len is what the batch counts against Store.MaxBatchLen: puts and deletes, long values
// several times.
func (b *Batch) Len() int { return b.entries }

// Reset empties the batch for reuse and drops all references that it holds.
func (b *Batch) Reset() {
	clear(b.ops)
	*b = Batch{ops: b.ops[:0], arena: b.arena[:0]}
}

// room returns an empty slice of the arena with at least n bytes of capacity. Appending
// past them moves it to memory of its own, which keep notices; nothing is overwritten.
func (b *Batch) room(n int) []byte {
	if cap(b.arena)-len(b.arena) < n {
		size := max(arenaBytes, min(2*cap(b.arena), maxArenaBytes), 1<<bits.Len(uint(n)))
		b.arena = make([]byte, 0, size)
	}
	return b.arena[len(b.arena):]
}

// keep marks used as taken, if it lies in the arena: the bytes behind the arena's end are used's.
func (b *Batch) keep(used []byte) {
	if free := b.arena[len(b.arena):cap(b.arena)]; len(used) <= len(free) && &used[0] == &free[0] {
		b.arena = b.arena[:len(b.arena)+len(used)]
	}
}

// clone returns a copy whose bytes the caller may keep.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return bytes.Clone(b)
}

package store

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Parts of one tablet's log, the byte after the tablet id in its keys.
const (
	logEntryPart     = 'e' // + index: term, type, data
	logHardStatePart = 'h' // term, vote, commit
	logTruncatedPart = 't' // index and term of the last entry that is gone
)

// deletesPerCall bounds how many entries one Truncate or Delete removes.
const deletesPerCall = 4096

// entryDeleteBytes is what the delete of one entry counts in a Batch.
const entryDeleteBytes = 1 + 8 + 1 + 8 + entryOverhead

// TruncateBytes is the most that one Truncate adds to a Batch's Size.
const TruncateBytes = (deletesPerCall + 2) * entryDeleteBytes

// deletesWithAppend bounds the overwritten entries whose deletes go in one Batch with those in
// their place; more of them go ahead, in batches of their own.
const deletesWithAppend = 256

// Log is one replica's Raft log. It implements raft.Storage and is used by its tablet's goroutine only. What Append and
// Truncate put into batches takes effect here when Appended and Truncated say that the batch's commit has returned;
// several may be under way, in order.
type Log struct {
	d      *database
	tablet uint64

	hard       *raftpb.HardState
	conf       *raftpb.ConfState
	truncated  position   // the entry before the first
	truncating []position // the same after the batches made so far, in order
	last       uint64     // highest readable index
	written    uint64     // highest index in the batches made so far
	cache      entryCache
	snapshot   func() (*raftpb.Snapshot, error) // nil: there are none
}

// position is a place in a log.
type position struct{ index, term uint64 }

var _ raft.Storage = (*Log)(nil)

func appendLogKey(dst []byte, tablet uint64, part byte) []byte {
	return append(binary.BigEndian.AppendUint64(append(dst, logPrefix), tablet), part)
}

func appendEntryKey(dst []byte, tablet, index uint64) []byte {
	return binary.BigEndian.AppendUint64(appendLogKey(dst, tablet, logEntryPart), index)
}

// entryValueBytes bounds an encoded entry's header.
const entryValueBytes = binary.MaxVarintLen64 + 1

func encodeEntry(e *raftpb.Entry) []byte {
	b := binary.AppendUvarint(make([]byte, 0, entryValueBytes+len(e.Data)), e.GetTerm())
	return append(append(b, byte(e.GetType())), e.Data...)
}

func decodeEntryHeader(b []byte) (term uint64, typ raftpb.EntryType, data []byte, err error) {
	r := reader{b: b}
	term = r.uvarint()
	typ = raftpb.EntryType(r.byte())
	return term, typ, r.b, r.done("raft entry", true)
}

func encodeHardState(hs *raftpb.HardState) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 3*binary.MaxVarintLen64), hs.GetTerm())
	return binary.AppendUvarint(binary.AppendUvarint(b, hs.GetVote()), hs.GetCommit())
}

func encodePosition(p position) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(make([]byte, 0, 2*binary.MaxVarintLen64), p.index), p.term)
}

// InitialLog adds to b a log that begins after (index, term), with everything up to index committed: a new replica's, or
// one's that a snapshot has brought there, whose entries must be gone by then. A HardState that is there stays, for what
// was voted must not be forgotten; OpenLog raises it. If logs and state are two databases, commit it before the tablet's
// state.
func InitialLog(b *Batch, tablet, index, term uint64) {
	b.Put(appendLogKey(nil, tablet, logTruncatedPart), encodePosition(position{index, term}))
}

// SetConfState sets what InitialState returns beside the HardState; it is kept with the tablet's state, not here.
func (l *Log) SetConfState(cs *raftpb.ConfState) { l.conf = cs }

// SetSnapshot sets what Snapshot returns: snapshots are taken by the tablet, not by its log. Of one, raft needs the metadata.
func (l *Log) SetSnapshot(snapshot func() (*raftpb.Snapshot, error)) { l.snapshot = snapshot }

// Append adds the entries and the HardState (nil: unchanged) to b, with deletes of the suffix that the entries
// overwrite. It panics if they would leave a gap. A batch that may exceed Store.MaxBatchBytes is AppendSplit's.
func (l *Log) Append(b *Batch, entries []*raftpb.Entry, hs *raftpb.HardState) {
	if n := len(entries); n > 0 {
		first := entries[0].GetIndex()
		if first > l.written+1 || first <= l.truncated.index {
			panic(fmt.Sprintf("store: append at %d to the log of tablet %d, which is (%d, %d]",
				first, l.tablet, l.truncated.index, l.written))
		}
		for _, e := range entries {
			b.Put(appendEntryKey(make([]byte, 0, 18), l.tablet, e.GetIndex()), encodeEntry(e))
		}
		last := entries[n-1].GetIndex()
		for i := last + 1; i <= l.written; i++ {
			b.Delete(appendEntryKey(make([]byte, 0, 18), l.tablet, i))
		}
		l.written = last
	}
	if !raft.IsEmptyHardState(hs) {
		b.Put(appendLogKey(make([]byte, 0, 10), l.tablet, logHardStatePart), encodeHardState(hs))
	}
}

// AppendSplit is Append into as many batches of at most maxBytes as it takes, to be committed in this order. After each
// of them the log on disk is whole: the HardState goes with every one, its commit index no further than the entries. An
// entry that is too long by itself, with at most deletesWithAppend deletes, gets a batch of its own.
func (l *Log) AppendSplit(entries []*raftpb.Entry, hs *raftpb.HardState, maxBytes int) []*Batch {
	const perEntry = 32 + entryValueBytes + entryOverhead // key and HardState included
	var out []*Batch
	if len(entries) > 0 {
		out = l.dropOverwritten(entries[0].GetIndex(), hs)
	}
	for len(entries) > 0 {
		n, size := 0, perEntry
		if first := entries[0].GetIndex(); first <= l.written {
			size += int(l.written-first+1) * entryDeleteBytes
		}
		for n < len(entries) && (n == 0 || size+perEntry+len(entries[n].Data) <= maxBytes) {
			size += perEntry + len(entries[n].Data)
			n++
		}
		b := new(Batch)
		l.Append(b, entries[:n], clampCommit(hs, entries[n-1].GetIndex(), n == len(entries)))
		out = append(out, b)
		entries = entries[n:]
	}
	if len(out) == 0 {
		b := new(Batch)
		l.Append(b, nil, hs)
		out = append(out, b)
	}
	return out
}

// dropOverwritten returns batches that delete the entries from first on, if they are too many to
// go with those that overwrite them. The last entries go first, so that the log has no gap after
// any of the batches. No entry that is overwritten was ever committed.
func (l *Log) dropOverwritten(first uint64, hs *raftpb.HardState) (out []*Batch) {
	if l.written < first+deletesWithAppend {
		return nil
	}
	for l.written >= first {
		b := new(Batch)
		for n := 0; n < deletesPerCall && l.written >= first; n++ {
			b.Delete(appendEntryKey(make([]byte, 0, 18), l.tablet, l.written))
			l.written--
		}
		l.Append(b, nil, clampCommit(hs, first-1, false))
		out = append(out, b)
	}
	return out
}

// clampCommit returns hs as it may stand with entries up to index only; with all of them, hs itself.
func clampCommit(hs *raftpb.HardState, index uint64, all bool) *raftpb.HardState {
	if all || raft.IsEmptyHardState(hs) || hs.GetCommit() <= index {
		return hs
	}
	term, vote := hs.GetTerm(), hs.GetVote()
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &index}
}

// Appended makes what Append added readable: its commit has returned. Call it in Append's order.
func (l *Log) Appended(entries []*raftpb.Entry, hs *raftpb.HardState) {
	if n := len(entries); n > 0 {
		l.cache.append(entries)
		l.last = entries[n-1].GetIndex()
	}
	if !raft.IsEmptyHardState(hs) {
		l.hard = hs
	}
}

// Truncate adds to b the removal of the entries up to index, which must be applied, durably, or of the first few
// thousand of them. It returns the index up to which it goes, for Truncated; 0 means that there is nothing to do.
func (l *Log) Truncate(b *Batch, index uint64) (upTo uint64, err error) {
	first := l.truncated.index + 1
	index = min(index, l.last, first+deletesPerCall-1)
	if index < first {
		return 0, nil
	}
	term, err := l.Term(index)
	if err != nil {
		return 0, err
	}
	to := position{index, term}
	l.truncating = append(l.truncating, to)
	b.Put(appendLogKey(nil, l.tablet, logTruncatedPart), encodePosition(to))
	for i := first; i <= index; i++ {
		b.Delete(appendEntryKey(make([]byte, 0, 18), l.tablet, i))
	}
	return index, nil
}

// Truncated makes the Truncate that returned upTo take effect: its commit has returned. Call it in Truncate's order.
func (l *Log) Truncated(upTo uint64) {
	for len(l.truncating) > 0 && l.truncating[0].index <= upTo {
		l.truncated = l.truncating[0]
		l.truncating = l.truncating[1:]
	}
	l.cache.dropThrough(l.truncated.index)
}

// Delete adds to b the removal of the whole log, or of its first few thousand entries: false means that there is more,
// and that the caller commits b, opens the log again and goes on.
func (l *Log) Delete(b *Batch) (done bool, err error) {
	if l.last > l.truncated.index+deletesPerCall {
		_, err := l.Truncate(b, l.last)
		return false, err
	}
	for i := l.truncated.index + 1; i <= max(l.last, l.written); i++ {
		b.Delete(appendEntryKey(make([]byte, 0, 18), l.tablet, i))
	}
	b.Delete(appendLogKey(nil, l.tablet, logTruncatedPart))
	b.Delete(appendLogKey(nil, l.tablet, logHardStatePart))
	return true, nil
}

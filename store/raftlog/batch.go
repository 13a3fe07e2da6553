package raftlog

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Batch is a list of changes to any number of replicas that become durable together or not at
// all, with one write and one sync. Changes apply in order. A Batch belongs to one goroutine at a
// time and must not be changed during Log.Append. The zero Batch is empty.
type Batch struct {
	items []item
	size  int64
}

// Len returns the number of changes.
func (b *Batch) Len() int { return len(b.items) }

// Size returns an upper bound of the batch's bytes in a segment. Log.Append refuses more than
// MaxBatchBytes.
func (b *Batch) Size() int64 { return b.size }

func (b *Batch) add(it item) {
	b.items = append(b.items, it)
	b.size += it.size()
}

// Begin replaces the replica's log by an empty one that begins after a position up to which the
// state is durable: that of a new replica, or of an installed snapshot. Begin also makes a
// checkpoint there with the figures. It keeps an existing HardState and raises it to the
// position, because votes must not be forgotten. The position must not be before the replica's
// checkpoint.
func (b *Batch) Begin(replica uint64, at Position, figures []byte) {
	b.add(item{kind: itemBegin, replica: replica, at: at, note: figures})
}

// Append adds entries, and sets the HardState unless it is nil or empty. The entries must be
// contiguous. They follow the log's last entry, or replace an uncommitted entry and all that
// follow it. The batch and later the log keep the entries: neither they nor their data may
// change afterwards.
func (b *Batch) Append(replica uint64, entries []*raftpb.Entry, hs *raftpb.HardState) {
	for _, e := range entries {
		at := Position{Index: e.GetIndex(), Term: e.GetTerm()}
		b.add(item{kind: itemEntry, replica: replica, at: at, entry: e})
	}
	if !raft.IsEmptyHardState(hs) {
		hard := hardState{term: hs.GetTerm(), vote: hs.GetVote(), commit: hs.GetCommit()}
		b.add(item{kind: itemHard, replica: replica, head: head{hard: hard}})
	}
}

// Truncate removes the replica's entries up to index, which must not exceed its checkpoint,
// because a replay needs the entries after the checkpoint.
func (b *Batch) Truncate(replica, index uint64) {
	b.add(item{kind: itemTruncate, replica: replica, at: Position{Index: index}})
}

// Checkpoint records that the replica's state is durable up to index: after a crash only later
// entries are replayed. figures are the parts of the state that decide how entries are applied,
// such as a tablet's descriptor and size, as of index. A replay must begin with them, because the
// state on disk may be ahead. Checkpoint also raises the commit index to index, since applied
// entries are committed.
func (b *Batch) Checkpoint(replica, index uint64, figures []byte) {
	b.add(item{kind: itemCheckpoint, replica: replica, at: Position{Index: index}, note: figures})
}

// Destroy removes the replica: its entries, its HardState and its position. Notes stay.
func (b *Batch) Destroy(replica uint64) { b.add(item{kind: itemDestroy, replica: replica}) }

// Note sets the note that Log.Notes returns for a key, or deletes it if note is empty. Notes are
// small records that must become durable in order with the log, such as that a range is being
// filled or that a replica was removed. Every segment repeats them. The batch keeps note.
func (b *Batch) Note(key string, note []byte) {
	b.add(item{kind: itemNote, key: key, note: note})
}

// housekeeping reports whether the batch adds no entries. Such a batch may use a segment's
// reserve, because it can free segments.
func (b *Batch) housekeeping() bool {
	for i := range b.items {
		if b.items[i].entry != nil {
			return false
		}
	}
	return true
}

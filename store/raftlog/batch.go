package raftlog

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Batch is a list of changes to any number of replicas that become durable together or
// not at all, by one write and one sync. Later changes see earlier ones. It belongs to
// one goroutine at a time and is not to be changed while Log.Append runs. The zero Batch
// is empty.
type Batch struct {
	items []item
	size  int64
}

// Len is the number of changes.
func (b *Batch) Len() int { return len(b.items) }

// Size bounds what the batch takes in a segment, in bytes; Log.Append refuses more than
// MaxBatchBytes.
func (b *Batch) Size() int64 { return b.size }

func (b *Batch) add(it item) {
	b.items = append(b.items, it)
	b.size += it.size()
}

// Begin makes the replica's log empty, beginning after a position up to which the state
// is durable: that of a new replica, or of a snapshot in force. It is a checkpoint there,
// with these figures. A HardState that is there stays and is raised to the position: what
// was voted must not be forgotten. The position never goes back.
func (b *Batch) Begin(replica uint64, at Position, figures []byte) {
	b.add(item{kind: itemBegin, replica: replica, at: at, note: figures})
}

// Append adds entries, which must follow one another and the log's, or replace some of
// its uncommitted ones and all behind them, and sets the HardState unless it is nil or
// empty. The batch keeps the entries, and so does the log for a while: neither they nor
// their data may change any more.
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

// Truncate lets go of the replica's entries up to index, which its checkpoint must cover:
// those behind it are what a replay needs.
func (b *Batch) Truncate(replica, index uint64) {
	b.add(item{kind: itemTruncate, replica: replica, at: Position{Index: index}})
}

// Checkpoint records that the replica's state is durable up to index: after a crash it is
// replayed from there on. figures are what entries are applied to that is not blind, such
// as a tablet's descriptor and its size, as of index: the state on disk may be ahead of
// it, and replay must not begin with what is there. It also commits up to index, for what
// was applied is committed.
func (b *Batch) Checkpoint(replica, index uint64, figures []byte) {
	b.add(item{kind: itemCheckpoint, replica: replica, at: Position{Index: index}, note: figures})
}

// Destroy removes the replica: its entries, its HardState and its place. Notes stay.
func (b *Batch) Destroy(replica uint64) { b.add(item{kind: itemDestroy, replica: replica}) }

// Note sets what Log.Notes returns for a key: small things that must be durable in order
// with the log, such as that a range is being filled or that a replica was removed. It is
// written anew into every segment. Empty: there is none. It keeps note.
func (b *Batch) Note(key string, note []byte) {
	b.add(item{kind: itemNote, key: key, note: note})
}

// housekeeping reports whether the batch adds no entries: what lets go of segments may
// use the last of their room.
func (b *Batch) housekeeping() bool {
	for i := range b.items {
		if b.items[i].entry != nil {
			return false
		}
	}
	return true
}

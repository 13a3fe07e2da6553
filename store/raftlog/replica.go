package raftlog

// Reads of a log. Readers run on their replicas' goroutines, concurrently. They look up the
// positions of entries under Log.mu and read segments under Log.reading alone.

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Replica reads one replica's log. It implements raft.Storage and belongs to the replica's
// goroutine. Each call sees everything that Log.Append has made durable by then.
type Replica struct {
	log      *Log
	id       uint64
	conf     *raftpb.ConfState
	applied  uint64
	snapshot func() (*raftpb.Snapshot, error) // nil: no snapshots
}

var _ raft.Storage = (*Replica)(nil)

// Replica returns the log of the replica. Its methods except Snapshot return ErrNoReplica before
// the replica's Begin and after its Destroy.
func (l *Log) Replica(id uint64) *Replica {
	return &Replica{log: l, id: id, conf: new(raftpb.ConfState)}
}

// SetConfState sets the ConfState that InitialState returns. The caller stores it durably with the
// state.
func (r *Replica) SetConfState(cs *raftpb.ConfState) { r.conf = cs }

// SetApplied records that everything up to index was applied. InitialState then returns at least
// index as the commit index, even if the HardState in the log lags, because a change of the commit
// index alone need not be appended.
func (r *Replica) SetApplied(index uint64) { r.applied = index }

// SetSnapshot sets the function that Snapshot calls.
func (r *Replica) SetSnapshot(snapshot func() (*raftpb.Snapshot, error)) { r.snapshot = snapshot }

// view runs f on the replica's state.
func (r *Replica) view(f func(*replica) error) error {
	r.log.mu.RLock()
	defer r.log.mu.RUnlock()
	s := r.log.state.replicas[r.id]
	if s == nil {
		return fmt.Errorf("%w: %d", ErrNoReplica, r.id)
	}
	return f(s)
}

// InitialState implements raft.Storage.
func (r *Replica) InitialState() (hs *raftpb.HardState, cs *raftpb.ConfState, err error) {
	err = r.view(func(s *replica) error {
		h := s.hard
		h.commit = max(h.commit, r.applied)
		hs = &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
		return nil
	})
	return hs, r.conf, err
}

// Checkpoint returns the index up to which the replica's state is durable and its log may be
// truncated.
func (r *Replica) Checkpoint() (index uint64, err error) {
	err = r.view(func(s *replica) error { index = s.checkpoint; return nil })
	return index, err
}

// FirstIndex implements raft.Storage.
func (r *Replica) FirstIndex() (index uint64, err error) {
	err = r.view(func(s *replica) error { index = s.truncated.Index + 1; return nil })
	return index, err
}

// LastIndex implements raft.Storage.
func (r *Replica) LastIndex() (index uint64, err error) {
	err = r.view(func(s *replica) error { index = s.last; return nil })
	return index, err
}

// Snapshot implements raft.Storage with the function of SetSnapshot. Without one it returns
// raft.ErrSnapshotTemporarilyUnavailable.
func (r *Replica) Snapshot() (*raftpb.Snapshot, error) {
	if r.snapshot == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return r.snapshot()
}

// Term implements raft.Storage, from memory.
func (r *Replica) Term(i uint64) (term uint64, err error) {
	err = r.view(func(s *replica) error {
		switch {
		case i == s.truncated.Index:
			term = s.truncated.Term
		case i < s.truncated.Index:
			return raft.ErrCompacted
		case i > s.last:
			return raft.ErrUnavailable
		default:
			term = s.slot(i).term
		}
		return nil
	})
	return term, err
}

// entryOverhead bounds what protobuf adds to an entry's data, for raft's limits of size.
const entryOverhead = 32

// Entries implements raft.Storage.
func (r *Replica) Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	var slots []slot
	err := r.view(func(s *replica) error {
		switch {
		case lo <= s.truncated.Index:
			return raft.ErrCompacted
		case hi > s.last+1 || lo > hi:
			return raft.ErrUnavailable
		}
		size := uint64(0)
		for i := lo; i < hi; i++ {
			sl := s.slot(i)
			if size += uint64(sl.length) + entryOverhead; len(slots) > 0 && size > maxBytes {
				break
			}
			slots = append(slots, *sl)
		}
		r.log.reading.RLock() // before a segment can be freed
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer r.log.reading.RUnlock()
	entries := make([]*raftpb.Entry, len(slots))
	for i := range slots {
		if entries[i] = slots[i].entry; entries[i] == nil {
			if entries[i], err = r.log.readEntry(r.id, lo+uint64(i), &slots[i]); err != nil {
				return nil, err
			}
		}
	}
	return entries, nil
}

// readEntry reads an entry from its segment. The caller ensures that the segment stays open.
func (l *Log) readEntry(replica, index uint64, sl *slot) (*raftpb.Entry, error) {
	b := make([]byte, sl.length)
	if _, err := sl.segment.file.ReadAt(b, int64(sl.offset)); err != nil {
		return nil, fmt.Errorf("raftlog: read segment %s: %w", sl.segment.name, err)
	}
	it, n, err := decodeItem(b)
	at := Position{Index: index, Term: sl.term}
	if err == nil && (n != len(b) || it.entry == nil || it.replica != replica || it.at != at) {
		err = errors.New("it is a different entry")
	}
	if err != nil {
		return nil, l.damage(sl.segment, int64(sl.offset), "entry %d of replica %d: %v", index,
			replica, err)
	}
	return it.cloneEntry(), nil
}

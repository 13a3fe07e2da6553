package raftlog

import "go.etcd.io/raft/v3/raftpb"

// recent limits the memory of cached entries: of all replicas together, those appended last
// are kept. Entries that were overwritten or truncated count until their turn comes. Log.mu
// guards it.
type recent struct {
	limit, bytes int64
	queue        []held
	first        int // index in queue of the oldest that is still cached
}

type held struct {
	replica, index uint64
	entry          *raftpb.Entry
}

// heldOverhead is about the memory of an entry beside its data.
const heldOverhead = 160

func (h held) bytes() int64 { return int64(len(h.entry.Data)) + heldOverhead }

// remember adds a cached entry, and drops the oldest ones from memory.
func (s *state) remember(replica, index uint64, entry *raftpb.Entry) {
	if entry == nil {
		return
	}
	q := &s.recent
	h := held{replica, index, entry}
	q.queue = append(q.queue, h)
	q.bytes += h.bytes()
	for q.bytes > q.limit && q.first < len(q.queue) {
		old := q.queue[q.first]
		q.queue[q.first] = held{}
		q.first++
		q.bytes -= old.bytes()
		if r := s.replicas[old.replica]; r != nil {
			if sl := r.slot(old.index); sl != nil && sl.entry == old.entry {
				sl.entry = nil
			}
		}
	}
	if q.first > len(q.queue)/2+64 {
		q.queue = append(q.queue[:0], q.queue[q.first:]...)
		q.first = 0
	}
}

package raftlog

import "go.etcd.io/raft/v3/raftpb"

// recent bounds the entries that are held in memory, of all replicas together: the last
// ones that were appended. It counts those that were overwritten or truncated as well
// until their turn comes. It is guarded by Log.mu.
type recent struct {
	limit, bytes int64
	queue        []held
	first        int // in queue: the ones before are gone
}

type held struct {
	replica, index uint64
	entry          *raftpb.Entry
}

// heldOverhead is about what an entry takes in memory beside its data.
const heldOverhead = 160

func (h held) bytes() int64 { return int64(len(h.entry.Data)) + heldOverhead }

// remember notes that an entry is in memory, and forgets the oldest ones.
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

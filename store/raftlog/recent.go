package raftlog

import "go.etcd.io/raft/v3/raftpb"

// recent limits the memory of cached entries, to the most recently appended ones of all replicas.
// Overwritten and truncated entries count until they are the oldest. Log.mu guards it.
type recent struct {
	limit, bytes int64
	queue        []cachedEntry
	first        int // index in queue of the oldest cached entry
}

type cachedEntry struct {
	replica, index uint64
	entry          *raftpb.Entry
}

// cachedOverhead is the approximate memory of an entry in addition to its data.
const cachedOverhead = 160

func (h cachedEntry) bytes() int64 { return int64(len(h.entry.Data)) + cachedOverhead }

// cache caches an entry, and drops the oldest ones beyond the limit.
func (s *state) cache(replica, index uint64, entry *raftpb.Entry) {
	if entry == nil {
		return
	}
	q := &s.recent
	h := cachedEntry{replica, index, entry}
	q.queue = append(q.queue, h)
	q.bytes += h.bytes()
	for q.bytes > q.limit && q.first < len(q.queue) {
		old := q.queue[q.first]
		q.queue[q.first] = cachedEntry{}
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

package raftlog

import (
	"errors"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Stats are a log's figures.
type Stats struct {
	Segments  int    // files with entries or state
	Bytes     int64  // of these files
	LiveBytes int64  // of them, of entries that are kept
	Spares    int    // files that are kept to be used again
	Batches   uint64 // appended since Open
	Written   uint64 // bytes of them
	Syncs     metrics.Histogram
}

// Stats returns the log's figures.
func (l *Log) Stats() Stats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	st := Stats{
		Segments: len(l.segments), Spares: int(l.spareCount.Load()),
		Batches: l.counts.batches, Written: l.counts.bytes, Syncs: l.synced.Read(),
	}
	for _, s := range l.segments {
		st.Bytes += s.bytes
		st.LiveBytes += s.liveBytes
	}
	return st
}

// rewriteBytes bounds a batch of Rewrite's.
const rewriteBytes = 1 << 20

// Rewrite lets go of the oldest segment: it writes the entries in it that are kept once
// more, at the end of the log, and returns how many bytes that were. Nothing is done if
// there is only one segment. A few entries of a replica that lags or rests thus cost
// their own bytes, not all that was written since. The caller does it while Stats.Bytes
// is above what it allows, and Stats.LiveBytes well below.
func (l *Log) Rewrite() (moved int64, err error) {
	var oldest *segment
	for {
		n, err := l.rewrite(&oldest)
		if moved += n; n == 0 || err != nil {
			return moved, err
		}
	}
}

// rewrite moves one batch of entries out of the oldest segment, which it notes at the first
// call; 0: there is nothing left in it. Appends may come between two calls.
func (l *Log) rewrite(oldest **segment) (moved int64, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	switch {
	case l.failed != nil:
		return 0, l.failed
	case len(l.segments) < 2:
		return 0, nil
	case *oldest == nil:
		*oldest = l.segments[0]
	}
	if l.segments[0] != *oldest || (*oldest).live == 0 {
		return 0, nil // let go of
	}
	b, err := l.collect(*oldest)
	if err != nil {
		return 0, err
	}
	return b.Size(), l.appendBatch(b)
}

// collect makes a batch of entries that are kept in the segment.
func (l *Log) collect(s *segment) (*Batch, error) {
	b := new(Batch)
	for id, r := range l.state.replicas { // nobody else changes it
		for i := range r.slots {
			if r.slots[i].segment != s {
				continue
			}
			index := r.truncated.Index + 1 + uint64(i)
			e, err := l.readEntry(id, index, &r.slots[i])
			if err != nil {
				return nil, err
			}
			at := Position{Index: index, Term: e.GetTerm()}
			b.add(item{kind: itemMoved, replica: id, at: at, entry: e})
			if b.size >= rewriteBytes {
				return b, nil
			}
		}
	}
	if len(b.items) == 0 {
		return nil, errors.New("raftlog: a segment is said to hold entries that no replica has")
	}
	return b, nil
}

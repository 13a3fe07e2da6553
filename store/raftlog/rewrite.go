package raftlog

// Stats of a log, and rewriting of the live entries of its oldest segment. Package store calls
// Rewrite on its background goroutine, concurrently with appends.

import (
	"errors"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Stats are a log's figures.
type Stats struct {
	Segments  int    // files with entries or state
	Bytes     int64  // size of these files
	LiveBytes int64  // bytes of live entries in these files
	Spares    int    // files kept for reuse
	Batches   uint64 // batches appended since Open
	Written   uint64 // bytes of these batches
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

// A segment of whose bytes at most 1/deadShare are live is nearly dead. A log of more than
// manySegments is large.
const (
	deadShare    = 16
	manySegments = 16
)

// WorthRewriting reports whether Rewrite should free the oldest segment: at once if it is nearly
// dead, because the next segment then reuses its file instead of filling a new one with zeros; or if
// the log is large and half of it is dead.
func (l *Log) WorthRewriting() bool {
	st := l.Stats()
	l.mu.RLock()
	defer l.mu.RUnlock()
	oldest := l.segments[0]
	return len(l.segments) > 1 && oldest.liveBytes > 0 && (oldest.liveBytes <= oldest.bytes/deadShare ||
		st.Segments > manySegments && st.LiveBytes <= st.Bytes/2)
}

// rewriteBytes is the size at which Rewrite ends a batch; its last entry may exceed it.
const rewriteBytes = 1 << 20

// Rewrite frees the oldest segment by writing its live entries again, at the end of the log. It
// returns their size in bytes, and does nothing if there is only one segment. Thus a few entries
// of a lagging or idle replica occupy only their own bytes, not all segments written since. The
// caller repeats it while WorthRewriting.
func (l *Log) Rewrite() (moved int64, err error) {
	var oldest *segment
	for {
		n, err := l.rewrite(&oldest)
		if moved += n; n == 0 || err != nil {
			return moved, err
		}
	}
}

// rewrite moves one batch of entries out of the oldest segment, which the first call stores in
// oldest. It returns 0 if none is left there. Appends may run between two calls.
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
		return 0, nil // the segment has been freed
	}
	b, err := l.collect(*oldest)
	if err != nil {
		return 0, err
	}
	return b.Size(), l.appendBatch(b)
}

// collect returns a batch with live entries of the segment.
func (l *Log) collect(s *segment) (*Batch, error) {
	b := new(Batch)
	for id, r := range l.state.replicas { // only holders of writing change it
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
		return nil, errors.New("raftlog: a segment counts live entries that no replica has")
	}
	return b, nil
}

package oracle

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// memory is what timestamps are given out from. It belongs to the term in which its mark
// was read. The actor gives out from it, and so does Now on any goroutine: whoever does
// has the lock, from before the confirmation that Now makes, or after the one that the
// actor got for the batch that it serves. All methods are called with the lock held.
type memory struct {
	clock func() time.Time
	ahead time.Duration // how far the mark is raised ahead of the last timestamp

	sync.Mutex
	term    uint64
	mark    mvcc.Timestamp // persisted
	last    mvcc.Timestamp // given out
	base    mvcc.Timestamp // physical time at take-over …
	tookAt  time.Time      // … and the clock then
	lastRun mvcc.Timestamp // last given out in any term: a check of invariant 1
	dropped bool           // nothing of the term is remembered; earlier terms stay over
	raising bool           // a raise of the mark is under way ahead of need
	// stands: the mark cannot be raised for want of disk space, so time stands still and
	// each timestamp is the next one. What is left below the mark, the reserve at least,
	// lasts for hours of reads.
	stands bool
}

// reserve is which part of the lead is kept for time that stands: were it used before the
// mark is known not to be raised, nothing could be read on a full disk.
const reserve = 16

// ErrNoRoom is wrapped by the error of Meta.Mark when the mark was not raised because the node's
// disk is full.
var ErrNoRoom = errors.New("oracle: no room on the disk for a higher mark")

var (
	// errStale: the confirmation is of an earlier term than the memory.
	errStale = errors.New("oracle: confirmation of an earlier term")
	// errBroken: the oracle has broken one of its own invariants; nothing was given out,
	// and the memory is dropped.
	errBroken = errors.New("oracle: broken invariant")
)

// markTooLow: the timestamps would not be below the persisted mark, or time that goes on
// would use up what is for time that stands. spent: time stands already.
type markTooLow struct {
	raiseTo mvcc.Timestamp
	spent   bool
}

// Error implements error.
func (e *markTooLow) Error() string {
	return fmt.Sprintf("oracle: the mark must be raised to %d", e.raiseTo)
}

// tooFarAhead: the timestamps would be more than maxLead ahead of physical time; room is how many
// would not be.
type tooFarAhead struct{ room mvcc.Timestamp }

// Error implements error.
func (e *tooFarAhead) Error() string {
	return fmt.Sprintf("oracle: only %d timestamps can be had until physical time goes on", e.room)
}

// take gives out total timestamps first, first+1, … on a confirmation of leadership in
// the term, with that mark.
func (m *memory) take(term uint64, mark, total mvcc.Timestamp) (first mvcc.Timestamp, err error) {
	switch {
	case term < m.term: // its leader has been replaced, and timestamps were given out since
		return 0, errStale
	case term > m.term && broken.KeepMemory && m.term != 0:
		m.term = term
	case term > m.term || m.dropped:
		m.takeOver(term, mark)
	}
	m.mark, m.stands = max(m.mark, mark), m.stands && mark <= m.mark
	first = max(m.last+1, m.physical())
	if m.stands {
		first = m.last + 1
	}
	end := first + total
	if limit := m.physical() + mvcc.TimestampAt(maxLead.Milliseconds()); end > limit && !broken.UnboundedLead {
		return 0, &tooFarAhead{limit - min(first, limit)}
	}
	if end > m.mark || !m.stands && end+m.lead()/reserve > m.mark {
		return 0, &markTooLow{raiseTo: end + m.lead(), spent: m.stands}
	}
	if first <= m.lastRun {
		m.drop()
		return 0, fmt.Errorf("%w: timestamp %d after %d", errBroken, first, m.lastRun)
	}
	m.last = end - 1
	m.lastRun = m.last
	return first, nil
}

// lead is ahead in timestamps.
func (m *memory) lead() mvcc.Timestamp { return mvcc.TimestampAt(m.ahead.Milliseconds()) }

// raise is what the mark is to be raised to before it is needed; 0: it is high enough, or
// being raised. The caller has it raised. While time stands still it is tried again and
// again: there may be room.
func (m *memory) raise() mvcc.Timestamp {
	if m.raising || !m.stands && m.last+m.lead()/2 <= m.mark {
		return 0
	}
	m.raising = true
	return max(m.last, m.physical()) + m.lead()
}

// raised ends what raise has begun.
func (m *memory) raised(term uint64, mark mvcc.Timestamp, err error) {
	m.raising = false
	switch {
	case term == m.term && err == nil:
		m.mark, m.stands = max(m.mark, mark), m.stands && mark <= m.mark
	case errors.Is(err, ErrNoRoom):
		m.stands = true
	}
}

// drop forgets all but which term it is: the next to take begins from the persisted mark.
// A confirmation of an earlier term is stale still, for others have given out timestamps
// since.
func (m *memory) drop() { m.dropped, m.raising = true, false }

// takeOver drops the memory of another term: the mark that this one read is all that is known.
func (m *memory) takeOver(term uint64, mark mvcc.Timestamp) {
	now := m.clock()
	m.term, m.mark, m.dropped, m.stands = term, mark, false, false
	m.last = mark
	if broken.ReuseTimestamps {
		m.last, mark = 0, 0
	}
	m.base = max(mark+1, mvcc.TimestampAt(now.UnixMilli()))
	m.tookAt = now
}

// physical is the time that timestamps follow; it never goes back.
func (m *memory) physical() mvcc.Timestamp {
	since := m.clock().Sub(m.tookAt)
	return m.base + mvcc.TimestampAt(max(since, 0).Milliseconds())
}

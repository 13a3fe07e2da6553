package oracle

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// memory is the state from which timestamps are issued. It belongs to the term in which its
// mark was read. The actor issues from it, and so does Now on any goroutine. All methods
// are called with the lock held: Now holds it from before it confirms leadership, the actor
// takes it after leadership has been confirmed for its batch.
type memory struct {
	clock func() time.Time

	sync.Mutex
	term          uint64
	mark          mvcc.Timestamp // the persisted mark
	last          mvcc.Timestamp // the last timestamp issued in this term
	base          mvcc.Timestamp // physical time at takeover
	tookAt        time.Time      // the clock at takeover
	lastOfAnyTerm mvcc.Timestamp // the last timestamp issued in any term: none is issued twice
	dropped       bool           // only term and lastOfAnyTerm above are valid; take begins from the mark
	raising       bool           // a raise of the mark ahead of need is in flight
	judged        judged         // the electorate for which this node's clock was last accepted
	// frozen means that the mark cannot be raised, because the node lacks disk space or another
	// resource for files. Physical time is then ignored and each timestamp is the next one. What is
	// left below the mark, at least the reserve, suffices for hours of reads.
	frozen bool
}

// reserve is the divisor of lead that gives the number of timestamps kept for a frozen clock. If
// they were used up before the oracle learned that the mark cannot be raised, nothing could be read
// on a full disk.
const reserve = 16

// ErrNoRoom is wrapped by the error of Meta.Mark if the mark was not raised, because the node lacks
// disk space or another resource for files.
var ErrNoRoom = errors.New("oracle: too little disk space or another resource to raise the mark")

var (
	// errStale reports a confirmation from an earlier term than the memory's.
	errStale = errors.New("oracle: confirmation of an earlier term")
	// errBroken reports that the oracle would have issued a timestamp twice. Nothing was issued,
	// and the memory is dropped.
	errBroken = errors.New("oracle: a timestamp would have been issued twice")
)

// markTooLow reports that the timestamps would exceed the persisted mark or, unless the
// clock is frozen, use up the reserve.
type markTooLow struct {
	raiseTo mvcc.Timestamp
	spent   bool // the clock is frozen and the reserve does not suffice
}

// Error implements error.
func (e *markTooLow) Error() string {
	return fmt.Sprintf("oracle: the mark must be raised to %d", e.raiseTo)
}

// tooFarAhead reports that the timestamps would be more than maxLead ahead of physical time. room
// is the number that would not.
type tooFarAhead struct{ room mvcc.Timestamp }

// Error implements error.
func (e *tooFarAhead) Error() string {
	return fmt.Sprintf("oracle: only %d timestamps are available until physical time advances",
		e.room)
}

// take issues the timestamps first, …, first+total-1 on a confirmation of leadership in the
// term with the mark. If it returns an error it has issued none.
func (m *memory) take(term uint64, mark, total mvcc.Timestamp) (first mvcc.Timestamp, err error) {
	switch {
	case term < m.term: // a later leader may have issued timestamps since
		return 0, errStale
	case term > m.term || m.dropped:
		m.takeOver(term, mark)
	}
	m.mark, m.frozen = max(m.mark, mark), m.frozen && mark <= m.mark
	first = max(m.last+1, m.physical())
	if m.frozen {
		first = m.last + 1
	}
	end := first + total
	if limit := m.physical() + mvcc.TimestampAt(maxLead.Milliseconds()); end > limit {
		return 0, &tooFarAhead{limit - min(first, limit)}
	}
	if end > m.mark || !m.frozen && end+lead()/reserve > m.mark {
		return 0, &markTooLow{raiseTo: end + lead(), spent: m.frozen}
	}
	if first <= m.lastOfAnyTerm {
		m.drop()
		return 0, fmt.Errorf("%w: timestamp %d after %d", errBroken, first, m.lastOfAnyTerm)
	}
	m.last = end - 1
	m.lastOfAnyTerm = m.last
	return first, nil
}

// lead returns the number of timestamps by which the mark is raised above the last one: those of
// three seconds.
func lead() mvcc.Timestamp { return mvcc.TimestampAt(3000) }

// raise returns the timestamp to which the caller has to raise the mark ahead of need, or 0 if the
// mark is high enough or being raised. While the clock is frozen it requests a raise again after
// each attempt, because the disk may have space by then.
func (m *memory) raise() mvcc.Timestamp {
	if m.raising || !m.frozen && m.last+lead()/2 <= m.mark {
		return 0
	}
	m.raising = true
	return max(m.last, m.physical()) + lead()
}

// raised records the outcome of the raise that raise asked for.
func (m *memory) raised(term uint64, mark mvcc.Timestamp, err error) {
	m.raising = false
	switch {
	case term == m.term && err == nil:
		m.mark, m.frozen = max(m.mark, mark), m.frozen && mark <= m.mark
	case errors.Is(err, ErrNoRoom):
		m.frozen = true
	}
}

// drop discards the memory except its term and lastOfAnyTerm; the next take begins from the persisted
// mark. The term is kept because a confirmation of an earlier one must still be refused.
func (m *memory) drop() { m.dropped, m.raising = true, false }

// takeOver begins a term from the mark that was read in it.
func (m *memory) takeOver(term uint64, mark mvcc.Timestamp) {
	now := m.clock()
	m.term, m.mark, m.dropped, m.frozen = term, mark, false, false
	m.last = mark
	m.base = max(mark+1, mvcc.TimestampAt(now.UnixMilli()))
	m.tookAt = now
}

// physical returns the time that timestamps follow. It never goes back.
func (m *memory) physical() mvcc.Timestamp {
	since := m.clock().Sub(m.tookAt)
	return m.base + mvcc.TimestampAt(max(since, 0).Milliseconds())
}

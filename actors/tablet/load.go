package tablet

import (
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Estimates of the tablet's load, for decisions on splits and moves: the rate of
// operations, from the counters, and the row that halves the load, from a ring of sampled
// rows. Batches are sampled in the turn that handles them, and status reads the figures,
// also in a turn.

// loads is the leader's estimate of the tablet's load: its rate, and its distribution over
// rows.
type loads struct {
	since   time.Time // start of the window
	ops     uint64    // the tablet's operations at that time
	rate    uint64    // operations per second in the previous window
	batches uint64
	rows    [loadSamples]string
	n       uint64 // samples taken
}

const (
	loadSamples = 256
	loadWindow  = 2 * time.Second
	// leastSamples is the number of samples needed to locate the load. Each side of a split
	// gets at least one part in leastShare; where no row divides it so, most of the load is on
	// one row, and a split would move it rather than divide it.
	leastSamples = 64
	leastShare   = 4
)

// sample records the row of one call of the batch. The batch's number chooses the call, so
// that no position in a batch is preferred. The row is cloned so that it does not retain
// the request.
func (l *loads) sample(calls []*Call) {
	l.batches++
	if row, ok := rowOf(calls[l.batches%uint64(len(calls))].Req); ok {
		l.rows[l.n%loadSamples] = strings.Clone(row)
		l.n++
	}
}

// perSecond returns the rate of operations per second in the last complete window of at
// least loadWindow; 0 before the first is complete. ops is the number of operations so far.
func (l *loads) perSecond(now time.Time, ops uint64) uint64 {
	switch spent := now.Sub(l.since); {
	case l.since.IsZero():
		l.since, l.ops = now, ops
	case spent >= loadWindow:
		l.rate = uint64(float64(ops-l.ops) / spent.Seconds())
		l.since, l.ops = now, ops
	}
	return l.rate
}

// half returns the row that comes closest to halving the sampled load, or "" if no split is
// worthwhile.
func (l *loads) half() string {
	if l.n < leastSamples {
		return ""
	}
	rows := slices.Clone(l.rows[:min(l.n, loadSamples)])
	slices.Sort(rows)
	best, least := "", len(rows)-len(rows)/leastShare
	for i := 1; i < len(rows); i++ {
		// A split cannot divide one row, so only the first sample of each row is a candidate.
		if rows[i] == rows[i-1] {
			continue
		}
		if larger := max(i, len(rows)-i); larger <= least && (best == "" || larger < least) {
			best, least = rows[i], larger
		}
	}
	return best
}

// rowOf returns a row of the operation, if it has one. Most operations concern a single row.
func rowOf(req *pb.TabletRequest) (string, bool) {
	s := wire.SubjectOf(req)
	c := s.Cell
	switch {
	case len(s.Writes) > 0:
		c = s.Writes[0].GetCell()
	case len(s.Cells) > 0:
		c = s.Cells[0]
	case s.Elsewhere:
		c = nil
	}
	return string(c.GetRow()), c != nil
}

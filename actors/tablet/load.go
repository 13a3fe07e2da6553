package tablet

import (
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file estimates the tablet's load for whoever decides on splits and moves: the rate
// of operations, from the counters, and the row that halves it, from a ring of sampled
// rows. Batches are sampled in the turn that handles them, and status reads the figures,
// in a turn as well.

// loads is what the leader knows of the tablet's load: how much there is, and on which
// rows.
type loads struct {
	since   time.Time // the window's begin
	ops     uint64    // the tablet's operations then
	rate    uint64    // operations per second in the window before
	batches uint64
	rows    [loadSamples]string
	n       uint64 // samples taken
}

const (
	loadSamples = 256
	loadWindow  = 2 * time.Second
	// leastSamples is how many rows must be known to tell where the load is. Each side of
	// a split gets at least one part in leastShare; where no row divides it so, most of
	// the load is on one row, and a split would move it rather than divide it.
	leastSamples = 64
	leastShare   = 4
)

// sample records the row of one call of the batch. Which one goes by the number of the
// batch, so that no place in a batch is preferred. The row is cloned: it must not keep
// the request.
func (l *loads) sample(calls []*Call) {
	l.batches++
	if row, ok := rowOf(calls[l.batches%uint64(len(calls))].Req); ok {
		l.rows[l.n%loadSamples] = strings.Clone(row)
		l.n++
	}
}

// perSecond returns the rate of operations per second in the last window of at least
// loadWindow that has ended; 0 before the first one has. ops counts the operations so
// far.
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

// half returns the row that comes nearest to halving the sampled load, or "" if none is
// worth a split.
func (l *loads) half() string {
	if l.n < leastSamples {
		return ""
	}
	rows := slices.Clone(l.rows[:min(l.n, loadSamples)])
	slices.Sort(rows)
	best, least := "", len(rows)-len(rows)/leastShare
	for i := 1; i < len(rows); i++ {
		// A split cannot divide one row, so only the first sample of each row counts as a
		// place.
		if rows[i] == rows[i-1] {
			continue
		}
		if larger := max(i, len(rows)-i); larger <= least && (best == "" || larger < least) {
			best, least = rows[i], larger
		}
	}
	return best
}

// rowOf returns a row that the operation is about, and whether there is one. Most are
// about one row only.
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

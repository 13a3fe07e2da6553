package tablet

import (
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// loads is what the leader knows of the tablet's load: how much there is, and on which
// rows. It belongs to the actor.
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
	// leastSamples is how many rows must be known to say where the load is. Each side of
	// a split gets a quarter of it at least; where no row does that, most of the load is
	// on one, and a split would move it, not divide it.
	leastSamples = 64
	leastShare   = 4
)

// sample notes the row of one of a batch's calls.
func (l *loads) sample(calls []*Call) {
	l.batches++
	if row, ok := rowOf(calls[l.batches%uint64(len(calls))].Req); ok {
		l.rows[l.n%loadSamples] = strings.Clone(row)
		l.n++
	}
}

// perSecond is the rate of operations, measured anew every loadWindow at most.
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

// half is the row that comes nearest to halving the recent load; empty if none is worth a split.
func (l *loads) half() string {
	if l.n < leastSamples {
		return ""
	}
	rows := slices.Clone(l.rows[:min(l.n, loadSamples)])
	slices.Sort(rows)
	best, least := "", len(rows)-len(rows)/leastShare
	for i := 1; i < len(rows); i++ {
		if rows[i] == rows[i-1] {
			continue
		}
		if larger := max(i, len(rows)-i); larger <= least && (best == "" || larger < least) {
			best, least = rows[i], larger
		}
	}
	return best
}

// rowOf is a row that the operation is about; most are about one.
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

package scanner

import (
	"context"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// Submission of cells in the order in which they became dirty, as recorded by the tablet's
// leader. Several scanners of several nodes do so concurrently. Each skips cells that it already
// handles or that another worker has locked, so that together they submit the head of the queue.
// It runs on the scanners' goroutines.

// randomWalks is the mean number of walks after which a place whose queue is finished is also
// walked from a random key, for cells missing in the leader's order.
const randomWalks = 16

// backlogMargin is the time by which Config.Now may lag behind the timestamps of changes when a
// backlog ends.
const backlogMargin = 50 * time.Millisecond

// backlog records whether a column has more dirty cells than its observer accepts in this
// process. During a backlog hints are dropped, because they would overtake the waiting cells. A
// node's hinter and scanners share it.
type backlog struct {
	on    atomic.Bool
	seen  atomic.Int64 // when a cell was last left for later, by Config.Now, in Unix milliseconds
	ended atomic.Int64 // when the backlog last ended, plus backlogMargin, in Unix milliseconds
}

// backlogs maps targets to their backlogs. The map is immutable.
type backlogs map[notify.Target]*backlog

func newBacklogs(targets []notify.Target) backlogs {
	out := backlogs{}
	for _, t := range targets {
		out[t.Key()] = &backlog{}
	}
	return out
}

// noteSkipped records that a cell was left for later, and reports whether a backlog starts.
func (b *backlog) noteSkipped(nowMillis int64) (begins bool) {
	b.seen.Store(nowMillis)
	return !b.on.Swap(true)
}

// noteNoneSkipped records a walk that has left no cell; all reports whether the walk covered all cells. The
// backlog ends in that case, or if no cell was left for the time quiet; ends reports whether it has
// ended. Hints may have been dropped after the walk's reads, so a further walk must search for
// slightly newer cells.
func (b *backlog) noteNoneSkipped(nowMillis int64, all bool, quiet time.Duration) (ends bool) {
	if !b.on.Load() || (!all && nowMillis-b.seen.Load() < quiet.Milliseconds()) {
		return false
	}
	b.ended.Store(nowMillis + backlogMargin.Milliseconds())
	b.on.Store(false)
	return true
}

// hinted reports whether the hint of a change at ts was not dropped because of a backlog.
func (b *backlog) hinted(ts mvcc.Timestamp) bool {
	return b == nil || (!b.on.Load() && ts.Millis() > b.ended.Load())
}

// skipCell records that this turn has left a cell of the target for later.
func (s *scan) skipCell(t notify.Target) {
	s.left[t] = true
	if b := s.backlog[t]; b != nil {
		b.noteSkipped(s.cfg.Now().UnixMilli())
	}
}

// endBacklogs ends the backlogs of the targets of which this turn has left no cell. all reports
// whether it covered all cells. It reports whether a backlog has ended: the next turn must then
// follow at once, for cells that became dirty in the meantime.
func (s *scan) endBacklogs(all bool) (ended bool) {
	now := s.cfg.Now().UnixMilli()
	for t, b := range s.backlog {
		if !s.left[t] && b.noteNoneSkipped(now, all, s.cfg.MinAge) {
			ended = true
		}
	}
	return ended
}

// oldest walks a place in the order in which its cells became dirty, until the target's window is
// full or no cell is left. resp is the first page.
func (s *scan) oldest(ctx context.Context, p *spot, resp *pb.WalkResponse) (v verdict) {
	for before := s.accepted; ; {
		// A refused lock means that another worker handles the cell, which is expected at the
		// head of the queue.
		if v = s.offer(ctx, resp.Entries); v != goOn && v != teleport {
			return v
		}
		if resp.Done || len(resp.Entries) == 0 {
			return goOn
		}
		if s.accepted-before >= s.cfg.window(p.target) {
			s.skipCell(p.target.Key())
			return leave // continue with other places
		}
		resp, v = s.ask(ctx, p, &pb.WalkRequest{
			FromRow: wire.Bytes(p.span.Start), Oldest: true, AfterPlace: resp.Place,
		})
		if v != goOn {
			return v
		}
		if !resp.Ordered { // the leader has changed or has lost the order
			return leave
		}
	}
}

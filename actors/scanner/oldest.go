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

// This file hands out what waits in the order in which it became dirty, as the tablet's
// leader knows it. Several scanners of several nodes do so at once: each passes over what
// its own run, or the advisory lock of another, shows to be under way, so that what they
// hand out together is the head of the queue.

// randomWalks is one in how many walks of a place whose queue is through looks at random,
// too: for what the leader's order may lack.
const randomWalks = 16

// backlogMargin is how far the clock that a backlog ends by may be behind the timestamps
// of changes.
const backlogMargin = 50 * time.Millisecond

// backlog is whether a column has more dirty cells than its observer takes at once in
// this process. While it has, hints are dropped: they would overtake what waits. A node's
// hinter and scanners share it.
type backlog struct {
	on    atomic.Bool
	seen  atomic.Int64 // when something was last left untaken, by Config.Now, in milliseconds
	ended atomic.Int64 // when the backlog was last over
}

// backlogs has one for each target; the map does not change.
type backlogs map[notify.Target]*backlog

func newBacklogs(targets []notify.Target) backlogs {
	out := backlogs{}
	for _, t := range targets {
		out[t.Key()] = &backlog{}
	}
	return out
}

// untaken notes that something was left for later, and reports whether that is new.
func (b *backlog) untaken(nowMillis int64) (begins bool) {
	b.seen.Store(nowMillis)
	return !b.on.Swap(true)
}

// taken notes that nothing was left: of all there is, or of a part of it. It ends the
// backlog then, or when none was seen for so long; ends reports whether it did. Hints may
// have been dropped after this walk has looked, so what is not much newer has to be
// looked for once more.
func (b *backlog) taken(nowMillis int64, all bool, quiet time.Duration) (ends bool) {
	if !b.on.Load() || (!all && nowMillis-b.seen.Load() < quiet.Milliseconds()) {
		return false
	}
	b.ended.Store(nowMillis + backlogMargin.Milliseconds())
	b.on.Store(false)
	return true
}

// hinted reports whether a change of that time has been hinted, as far as the backlog goes.
func (b *backlog) hinted(ts mvcc.Timestamp) bool {
	return b == nil || (!b.on.Load() && ts.Millis() > b.ended.Load())
}

// untaken notes that this turn has left something of the target.
func (s *scan) untaken(t notify.Target) {
	s.left[t] = true
	if b := s.backlog[t]; b != nil {
		b.untaken(s.cfg.Now().UnixMilli())
	}
}

// through ends the backlogs of which this turn has left nothing; all says whether it has
// seen everything. It reports whether it has ended one: what came while it did is to be
// looked for at once.
func (s *scan) through(all bool) (ended bool) {
	now := s.cfg.Now().UnixMilli()
	for t, b := range s.backlog {
		if !s.left[t] && b.taken(now, all, s.cfg.Young) {
			ended = true
		}
	}
	return ended
}

// oldest walks a place in the order in which its cells became dirty, until Window of them
// are taken or none is left; resp is the first page.
func (s *scan) oldest(ctx context.Context, p *spot, resp *pb.WalkResponse) (v verdict) {
	for before := s.accepted; ; {
		// A refused lock means that another worker is at it, as is to be expected at the
		// head of the queue.
		if v = s.offer(ctx, resp.Entries); v != goOn && v != teleport {
			return v
		}
		if resp.Done || len(resp.Entries) == 0 {
			return goOn
		}
		if s.accepted-before >= s.cfg.Window {
			s.untaken(p.target.Key())
			return leave // other places have their turn
		}
		resp, v = s.ask(ctx, p, &pb.WalkRequest{
			FromRow: wire.Bytes(p.span.Start), Oldest: true, AfterPlace: resp.Place,
		})
		if v != goOn {
			return v
		}
		if !resp.Ordered { // the leader has changed, or the order is not known any more
			return leave
		}
	}
}

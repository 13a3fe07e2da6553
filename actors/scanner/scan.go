package scanner

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	maxTeleports = 4  // jumps in one turn
	offerCells   = 64 // cells locked and offered in one message
	// slotWait is the time that a scanner waits for a slow observer before it continues with
	// other places, and slotGather the additional time, once one slot is free, for further ones.
	slotWait   = 100 * time.Millisecond
	slotGather = time.Millisecond
)

// scan is one scanner, the paper's scanning thread (§2.4). Only its actor's goroutine uses it,
// except slots.
type scan struct {
	cfg   Config
	rng   *rand.Rand
	locks *holder
	stats *Stats
	// slots has for each target a channel with a token for each cell that the dispatcher has, other
	// than in debounce, so that a slow or stuck observer blocks only its own cells. The map is
	// immutable.
	slots   map[notify.Target]chan struct{}
	samples map[place]*sample
	choice  *choice       // the node's
	backlog backlogs      // the node's
	pause   time.Duration // the last pause after a turn that found nothing
	// debounced has the targets with a debounce.
	debounced map[notify.Target]*debounced

	budget   int // walk requests left in this turn
	accepted int // cells that the dispatcher accepted in this turn
	// left has the targets of which this turn has left cells for later.
	left map[notify.Target]bool
}

func newScan(cfg Config, rng *rand.Rand, locks *holder, choice *choice, backlog backlogs,
	stats *Stats) *scan {
	s := &scan{
		cfg: cfg, rng: rng, locks: locks, stats: stats, choice: choice, backlog: backlog,
		slots: make(map[notify.Target]chan struct{}), samples: make(map[place]*sample),
		left: make(map[notify.Target]bool), debounced: map[notify.Target]*debounced{},
	}
	for _, t := range cfg.Targets {
		s.slots[t.Key()] = make(chan struct{}, cfg.window(t))
		if t.Debounce > 0 {
			s.debounced[t.Key()] = &debounced{rest: t.Debounce}
		}
	}
	return s
}

// verdict is the continuation of a walk.
type verdict uint8

const (
	goOn     verdict = iota
	teleport         // another worker is here: continue at another random place
	leave            // skip the place: the observer's queue is full or the tablet silent
	stop             // the turn is over
)

// turn walks from a random place until its requests are used up or every place was walked once, and
// returns the pause before the next turn. It begins again at another place, up to maxTeleports
// times, if another worker has locked a row.
func (s *scan) turn(ctx context.Context) time.Duration {
	s.stats.Turns.Add(1)
	s.budget, s.accepted = s.cfg.Requests, 0
	clear(s.left)
	for _, d := range s.debounced {
		d.turn(s.cfg.Now())
	}
	if ended := s.endBacklogs(s.walk(ctx)); ended || s.accepted > 0 {
		s.pause = 0
		return paceBusy
	}
	s.pause = min(max(2*s.pause, s.cfg.PaceMin), s.cfg.PaceMax)
	// Jitter, so that the scanners of all nodes do not synchronize.
	return s.pause/2 + time.Duration(s.rng.Int64N(int64(s.pause/2)+1))
}

// walk walks the tablets selected by the survey, and reports whether it has covered all of them.
func (s *scan) walk(ctx context.Context) (all bool) {
	if len(s.cfg.Targets) == 0 {
		return false
	}
	dirty, again, err := s.choose(ctx)
	if err != nil {
		s.stats.Errors.Add(1)
		return false
	}
	if v := s.around(ctx, s.probe(ctx, s.places(again))); v == stop {
		return false
	}
	places := s.places(dirty)
	for jumps := 0; len(places) > 0; jumps++ {
		if v := s.around(ctx, places); v != teleport || jumps == maxTeleports {
			return v == goOn
		}
		s.stats.Teleports.Add(1)
	}
	return true
}

// spot is a place with its tablet and its rows.
type spot struct {
	place
	tablet *pb.TabletDescriptor
	span   mvcc.Span
}

// places returns the places of the tablets, in range order, without paused columns. The order
// of the columns in a tablet is rotated at random.
func (s *scan) places(tablets []*pb.TabletDescriptor) []spot {
	var out []spot
	for _, d := range tablets {
		first := s.rng.IntN(len(s.cfg.Targets))
		for i := range s.cfg.Targets {
			t := s.cfg.Targets[(first+i)%len(s.cfg.Targets)]
			if s.cfg.Paused(t) {
				continue
			}
			if span, ok := wire.Clip(d, mvcc.Span{Table: t.Table}); ok {
				out = append(out, spot{place{d.GetTabletId(), t}, d, span})
			}
		}
	}
	return out
}

// probe returns those of the places that have a dirty cell, or whose tablet has not answered. It
// sends one request for all places that follow one another in one table of one tablet, and none for
// a place without such a neighbour, which it returns unasked.
func (s *scan) probe(ctx context.Context, places []spot) (dirty []spot) {
	for len(places) > 0 {
		first, n := &places[0], 1
		for n < len(places) && places[n].tablet == first.tablet && places[n].target.Table == first.target.Table {
			n++
		}
		same := places[:n]
		if places = places[n:]; n == 1 { // a walk of a single place is one request, too
			dirty = append(dirty, same...)
			continue
		}
		req := &pb.WalkRequest{
			FromRow: wire.Bytes(first.span.Start), Oldest: s.rng.IntN(randomWalks) != 0,
		}
		for _, p := range same {
			req.Columns = append(req.Columns,
				&pb.Cell{Class: uint32(p.target.Class), Column: wire.Bytes(p.target.Column)})
		}
		resp, v := s.ask(ctx, first, req)
		if v == stop {
			return dirty
		}
		for _, p := range same {
			if !resp.GetProbed() || slices.ContainsFunc(resp.GetDirty(), func(c *pb.Cell) bool {
				return mvcc.Class(c.GetClass()) == p.target.Class && wire.String(c.GetColumn()) == p.target.Column
			}) {
				dirty = append(dirty, p)
			}
		}
	}
	return dirty
}

// around walks all places once, starting at a random one.
func (s *scan) around(ctx context.Context, places []spot) verdict {
	if len(places) == 0 {
		return goOn
	}
	first := s.rng.IntN(len(places))
	for i := range places {
		p := &places[(first+i)%len(places)]
		switch v := s.place(ctx, p); v {
		case goOn, leave:
		case teleport, stop:
			return v
		}
	}
	return goOn
}

// place submits the cells that have waited longest. If the tablet's leader does not know the
// order, and sometimes when its queue is empty, the place is walked from a random key.
func (s *scan) place(ctx context.Context, p *spot) verdict {
	resp, v := s.ask(ctx, p, &pb.WalkRequest{FromRow: wire.Bytes(p.span.Start), Oldest: true})
	if v != goOn {
		return v
	}
	if !resp.Ordered {
		return s.anywhere(ctx, p, resp)
	}
	if v := s.oldest(ctx, p, resp); v != goOn || s.rng.IntN(randomWalks) != 0 {
		return v
	}
	if resp, v = s.ask(ctx, p, &pb.WalkRequest{FromRow: wire.Bytes(p.span.Start)}); v != goOn {
		return v
	}
	return s.anywhere(ctx, p, resp)
}

// page requests one page of a place's dirty cells, in the order of the rows. If done is false,
// entries is not empty.
func (s *scan) page(ctx context.Context, p *spot, from string,
	after *pb.Cell) (entries []*pb.WalkEntry, done bool, v verdict) {
	resp, v := s.ask(ctx, p, &pb.WalkRequest{FromRow: wire.Bytes(from), After: after})
	if v != goOn {
		return nil, true, v
	}
	return resp.Entries, resp.Done || len(resp.Entries) == 0, goOn
}

// ask requests one page after completing the request.
func (s *scan) ask(ctx context.Context, p *spot, req *pb.WalkRequest) (*pb.WalkResponse, verdict) {
	if s.budget == 0 || ctx.Err() != nil {
		return nil, stop
	}
	s.budget--
	s.stats.Requests.Add(1)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req.Group, req.Table = uint32(mvcc.GroupNotify), uint32(p.target.Table)
	req.Class, req.Column = uint32(p.target.Class), wire.Bytes(p.target.Column)
	req.Limit = uint32(s.cfg.Page)
	resp, err := s.cfg.Walker.Walk(ctx, p.tablet, req)
	if err != nil {
		s.stats.Errors.Add(1)
		s.cfg.Logger.Debug("scanner: walk failed", "tablet", p.tablet.GetTabletId(), "error", err)
		return nil, leave
	}
	s.cfg.Traces.Learn(resp.Entries)
	return resp, goOn
}

// offer locks the dirty cells and submits them to the dispatcher, a few at a time, as slots
// become free. It skips those that are parked, in flight, within the debounce, or left to hints.
func (s *scan) offer(ctx context.Context, entries []*pb.WalkEntry) verdict {
	var batch []notify.Dirty
	now := s.cfg.Now().UnixMilli()
	for _, e := range entries {
		n, cell := wire.Notify(e.GetNotify()), wire.Cell(e.GetCell())
		switch {
		case n.ParkedTS != 0:
			s.stats.Parked.Add(1)
			continue
		case s.backlog[notify.TargetOf(cell)].hinted(n.TS) && s.young(&n, now):
			continue
		case s.debounced[notify.TargetOf(cell)].leaves(&n, now), s.locks.own(cell):
			continue
		}
		batch = append(batch, notify.Dirty{Cell: cell, Notify: &n})
		if len(batch) == offerCells {
			if v := s.hand(ctx, batch); v != goOn {
				return v
			}
			batch = nil
		}
	}
	return s.hand(ctx, batch)
}

// young reports whether the change is so recent that its hint is probably being handled. A change
// in the future, by a clock behind the oracle's, is not young: no clock may prevent a cell from
// being found.
func (s *scan) young(n *mvcc.Notify, nowMillis int64) bool {
	age := nowMillis - n.TS.Millis()
	return s.cfg.Hints != HintsOff && n.Attempts == 0 && age >= 0 &&
		age < s.cfg.MinAge.Milliseconds()
}

// hand acquires a slot and the advisory lock of each cell, and submits the cells with both. All
// cells are of one column.
func (s *scan) hand(ctx context.Context, batch []notify.Dirty) verdict {
	result := goOn
	for len(batch) > 0 && result == goOn {
		var n int
		target := notify.TargetOf(batch[0].Cell)
		if n, result = s.acquire(ctx, target, len(batch)); result != goOn {
			return result
		}
		result = s.submit(ctx, batch[:n])
		batch = batch[n:]
	}
	return result
}

// acquire waits up to slotWait for a slot and acquires up to want of them.
func (s *scan) acquire(ctx context.Context, target notify.Target, want int) (n int, v verdict) {
	slots := s.slots[target]
	select {
	case slots <- struct{}{}:
	default:
		s.skipCell(target)
		enough := time.NewTimer(slotWait)
		defer enough.Stop()
		select {
		case slots <- struct{}{}:
		case <-enough.C:
			return 0, leave
		case <-ctx.Done():
			return 0, stop
		}
		if want > 1 { // instead of one message for each cell
			enough.Reset(slotGather)
			<-enough.C
		}
	}
	for n = 1; n < want; n++ {
		select {
		case slots <- struct{}{}:
		default:
			return n, goOn
		}
	}
	return n, goOn
}

// submit submits the cells, each of which has a slot.
func (s *scan) submit(ctx context.Context, batch []notify.Dirty) verdict {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cells := make([]mvcc.Cell, len(batch))
	for i := range batch {
		cells[i] = batch[i].Cell
	}
	result, slots := goOn, s.slots[notify.TargetOf(batch[0].Cell)]
	var items []notify.Dirty
	for i, state := range s.locks.take(ctx, cells) {
		held := &slot{of: slots}
		if state != lockGranted {
			held.free()
			if state == lockRefused {
				result = teleport
			}
			continue
		}
		item := batch[i]
		item.Held, item.Waits = true, held.free
		item.Done = func() {
			s.locks.release(item.Cell)
			held.free()
		}
		item.Backlog = !s.backlog[notify.TargetOf(item.Cell)].hinted(mvcc.MaxTimestamp)
		items = append(items, item)
	}
	if len(items) == 0 {
		return result
	}
	answers, err := s.cfg.Dispatcher.Submit(ctx, items)
	if err != nil {
		// If ctx has ended, the dispatcher may have accepted some cells: these lose their locks, so
		// that another worker may run them, too.
		for i := range items {
			items[i].Done()
		}
		return stop
	}
	for i, answer := range answers {
		if answer == notify.Accepted {
			s.accepted++
			continue
		}
		items[i].Done()
		switch answer {
		case notify.Full, notify.Paused:
			result = max(result, leave)
			if answer == notify.Full {
				s.skipCell(notify.TargetOf(items[i].Cell))
			}
		case notify.Stopped:
			result = stop
		}
	}
	return result
}

// slot is the token of one cell.
type slot struct {
	of    chan struct{} // the channel that has the token
	freed atomic.Bool
}

// free returns the token, once. It does not block and is safe for concurrent use.
func (s *slot) free() {
	if !s.freed.Swap(true) {
		<-s.of
	}
}

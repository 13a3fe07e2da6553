package timers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Turns of the job, on the actor's goroutine.

const (
	page        = 128 // timers in one firing transaction
	pages       = 8   // transactions for a shard in one turn
	turnTimeout = time.Minute
	// late is the time before the present from which the job reads again, for timers of
	// transactions with slow commits; wholeEvery is the interval of full reads, for slower ones.
	late       = 2 * time.Second
	wholeEvery = time.Minute
	// mostCounted limits the pending timers counted for each shard.
	mostCounted = 1250
	retry       = time.Second // pause after an error, and while Ready reports false
	idlePauses  = 5           // factor of the pause while there are no timers
	// Each transaction is limited by attemptTimeout. Timers of an unavailable tablet are set
	// again for postponed later, without an attempt while the tablet counts as silent.
	attemptTimeout = time.Second
	postponed      = 5 * time.Second
	silentFor      = 15 * time.Second
)

// work is the job's state between turns.
type work struct {
	cfg     Config
	tablets []Tablet                 // at the last read of the timers
	next    time.Time                // due time of the first known timer; zero if there is none
	whole   time.Time                // time of the last full read
	shards  [mvcc.TimerShards]string // row from which the next read starts
	apart   bool                     // a split of the timers into their own tablet was tried
	// rescanPending means that timers may have been written since the last full read.
	rescanPending bool
	failing       bool                 // the last turn ended in an error
	skipUntil     map[uint64]time.Time // tablets that did not respond, and until when they are skipped
}

func newWork(cfg Config) *work { return &work{cfg: cfg, skipUntil: map[uint64]time.Time{}} }

// turn fires the due timers, if any.
func (w *work) turn(ctx context.Context) time.Duration {
	if !w.cfg.Ready() {
		return retry
	}
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	more, err := w.look(ctx)
	if err != nil {
		if ctx.Err() == nil && !w.failing {
			w.cfg.Logger.Warn("timers: reading or firing timers failed; trying again", "error", err)
		}
		w.failing = true
		return retry
	}
	w.failing = false
	switch {
	case more:
		return 0
	case w.next.IsZero(): // no timer is pending, usually because none was ever set
		return idlePauses * w.cfg.Pause
	}
	return w.cfg.Pause
}

// look reads the timers, unless none is known to be due and no tablet of theirs has changed. more
// reports whether further timers are due.
func (w *work) look(ctx context.Context) (more bool, err error) {
	tablets, err := w.cfg.Tablets(ctx)
	if err != nil {
		return false, err
	}
	now := time.Now()
	changed := !slices.Equal(tablets, w.tablets)
	whole := (changed || w.rescanPending) && now.Sub(w.whole) >= wholeEvery
	if !changed && !whole && (w.next.IsZero() || now.Before(w.next)) {
		return false, nil
	}
	w.rescanPending = !whole && (w.rescanPending || changed)
	if whole {
		w.shards, w.whole = [mvcc.TimerShards]string{}, now
	}
	weak := &weakColumns{meta: w.cfg.Meta}
	first := int64(-1) // due time of the first timer in the future
	at, err := w.cfg.Client.Timestamp(ctx)
	if err != nil {
		return false, err
	}
	present := presentAt(at)
	// A shard that cannot be read, such as while a lock waits for an unavailable tablet, does not
	// delay the others.
	var failed error
	for shard := range mvcc.TimerShards {
		due, there, err := w.head(ctx, shard, at)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if there && due < present {
			left, err := w.fire(ctx, shard, weak)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			more = more || left
			due = present // the next turn reads the remaining timers
		}
		if there && (first < 0 || due < first) {
			first = due
		}
	}
	if failed != nil {
		return false, failed
	}
	if whole {
		if err := w.countPending(ctx, at); err != nil {
			return false, err
		}
	}
	w.tablets, w.next = tablets, time.Time{}
	if first >= 0 {
		w.next = now.Add(time.Duration(first+1-present) * time.Millisecond)
		w.separate(ctx)
	}
	return more, nil
}

// presentAt returns the present in milliseconds, given a new ts: the earlier of the oracle's
// time, by which timers are set, and this node's clock. The oracle's time jumps ahead when meta's
// leader changes, which must not make timers due early.
func presentAt(ts mvcc.Timestamp) int64 { return min(ts.Millis(), time.Now().UnixMilli()) }

// head returns the due time of the shard's first timer. It starts to read after the fired ones. If
// no timer is due, the next read starts 2 s (late) before the present.
func (w *work) head(ctx context.Context, shard int, at mvcc.Timestamp) (due int64, there bool,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	span := mvcc.TimerSpan(shard, 0, 1<<63-1)
	span.Start = max(span.Start, w.shards[shard])
	w.cfg.Stats.Reads.Add(1)
	for r, err := range w.cfg.Client.Records(ctx, txn.RecordScan{Span: span, At: at, Limit: 1}) {
		if err != nil {
			return 0, false, err
		}
		due, there = mvcc.TimerDue(r.Cell.Row), true
		break
	}
	if present := presentAt(at); !there || due >= present {
		w.shards[shard] = mvcc.TimerSpan(shard, present-late.Milliseconds(), 0).Start
	}
	return due, there, nil
}

// fire fires timers of the shard that are due, in bounded transactions. left reports whether
// there may be more.
func (w *work) fire(ctx context.Context, shard int,
	weak *weakColumns) (left bool, err error) {
	for range pages {
		n, err := w.firePage(ctx, shard, weak)
		if err != nil {
			return false, err
		}
		if n < page {
			return false, nil
		}
	}
	return true, nil
}

// firePage fires up to a page of timers of the shard, and returns the number found.
func (w *work) firePage(ctx context.Context, shard int,
	weak *weakColumns) (n int, err error) {
	b := batch{from: max(mvcc.TimerSpan(shard, 0, 0).Start, w.shards[shard]), weak: weak}
	rows, now, err := w.fireBatch(ctx, &b)
	switch {
	case err != nil && len(rows) == 0:
		return 0, err
	case err != nil:
		if err := w.eachTablet(ctx, rows, weak); err != nil {
			return 0, err
		}
	}
	if len(rows) == page {
		w.shards[shard] = rows[page-1] + "\x00"
	} else {
		w.shards[shard] = mvcc.TimerSpan(shard, now-late.Milliseconds(), now).Start
	}
	return len(rows), nil
}

// eachTablet fires the timers of rows, which failed to fire together, in one transaction for each
// tablet that has target cells of them. If that fails too, or the tablet is known to be silent, its
// timers are set again for later, so that they do not block the others.
func (w *work) eachTablet(ctx context.Context, rows []string,
	weak *weakColumns) error {
	b := batch{from: rows[0], to: rows[len(rows)-1], weak: weak, seen: map[uint64]bool{}}
	b.only = noTablet
	if _, _, err := w.fireBatch(ctx, &b); err != nil {
		return err
	}
	for id := range b.seen {
		b.only, b.later = id, w.isSilent(id)
		_, _, err := w.fireBatch(ctx, &b)
		if err != nil && !b.later {
			w.skipUntil[id] = time.Now().Add(silentFor)
			b.later = true
			_, _, err = w.fireBatch(ctx, &b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isSilent reports whether the tablet recently did not respond.
func (w *work) isSilent(tablet uint64) bool {
	until, there := w.skipUntil[tablet]
	if there && time.Now().After(until) {
		delete(w.skipUntil, tablet)
		return false
	}
	return there
}

// Values of batch.only and keys of batch.seen in place of a tablet's id: noTablet selects no timer,
// unknownTablet those whose target cell's tablet this node does not know.
const (
	noTablet      uint64 = 1<<64 - 1
	unknownTablet uint64 = 1<<64 - 2
)

// batch selects the timers that one transaction fires.
type batch struct {
	from, to string // rows, inclusive; an empty to means the end of the shard
	weak     *weakColumns
	only     uint64          // if not 0, only timers whose target cell is in that tablet
	later    bool            // the timers are set again for later, without firing
	seen     map[uint64]bool // collects the tablets of the target cells, unless nil
	tx       *txn.Txn
	now      int64 // in milliseconds
	done     Stats
}

// fireBatch fires up to a page of due timers in one transaction. It returns the rows of the due
// ones that it read, also of those that b.only leaves out or if the commit fails, and the time in
// milliseconds.
func (w *work) fireBatch(ctx context.Context, b *batch) (rows []string, now int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	b.done, b.weak.fresh = Stats{}, false
	if b.tx, err = w.cfg.Client.Begin(ctx, txn.Options{Name: "timers"}); err != nil {
		return nil, 0, err
	}
	defer func() { _ = b.tx.Rollback(ctx) }() // changes nothing after the commit
	b.now = presentAt(b.tx.StartTS())
	span := mvcc.TimerSpan(int(b.from[0]), 0, b.now)
	if span.Start = b.from; b.to != "" {
		span.End = b.to + "\x00"
	}
	w.cfg.Stats.Reads.Add(1)
	scan := txn.RecordScan{Span: span, At: b.tx.StartTS(), Limit: page}
	for r, err := range w.cfg.Client.Records(ctx, scan) {
		if err != nil {
			return nil, 0, err
		}
		if err := w.one(ctx, b, r); err != nil {
			return nil, 0, err
		}
		if rows = append(rows, r.Cell.Row); len(rows) == page {
			break
		}
	}
	if _, err := b.tx.Commit(ctx); err != nil {
		return rows, b.now, fmt.Errorf("timers: fire %d timers: %w", len(rows), err)
	}
	w.count(&b.done)
	return rows, b.now, nil
}

// one handles one due timer in the batch's transaction.
func (w *work) one(ctx context.Context, b *batch, r mvcc.ReadCell) error {
	t, ok := mvcc.TimerOf(r.Cell, r.Value)
	// A cell that exceeds this node's limits cannot be notified. Such a timer was forged, or set
	// by a node with higher limits.
	if ok = ok && w.cfg.Client.CheckCell(t.Target) == nil; ok {
		var err error
		if ok, err = b.weak.has(ctx, t.Target); err != nil {
			return err
		}
	}
	if !ok {
		b.tx.Fire(r.Cell, nil, nil)
		b.done.Dropped.Add(1)
		return nil
	}
	due, later := r.CommitTS.Millis()+t.After, b.later
	if b.seen != nil || len(w.skipUntil) > 0 { // otherwise its tablet does not matter
		id := cmp.Or(w.cfg.Client.TabletOf(t.Target), unknownTablet)
		if b.seen != nil {
			b.seen[id] = true
		}
		if b.only != 0 && b.only != id {
			return nil
		}
		later = later || w.isSilent(id)
	}
	switch {
	case t.After > 0 && due >= b.now: // the timer's transaction committed late
		b.tx.Fire(r.Cell, &mvcc.Timer{Target: t.Target, Due: due}, nil)
		b.done.Moved.Add(1)
	case later:
		b.tx.Fire(r.Cell, &mvcc.Timer{
			Target: t.Target, Due: b.now + postponed.Milliseconds(),
		}, nil)
		b.done.Moved.Add(1)
	default:
		b.tx.Fire(r.Cell, nil, &t.Target)
		b.done.Fired.Add(1)
		b.done.Lag.Store(b.now - max(t.Due, due))
	}
	return nil
}

// weakColumns are the columns with a weak observer in the catalogue, cached for a turn.
type weakColumns struct {
	meta  Meta
	found map[mvcc.ObservedColumn]bool
	fresh bool // read since the batch started
}

// has reports whether the cell's column has a weak observer. Before it returns false it reads the
// catalogue again, once for each batch: an observer may have been registered since the turn
// started, and a timer dropped by mistake is lost.
func (c *weakColumns) has(ctx context.Context, cell mvcc.Cell) (bool, error) {
	column := mvcc.ObservedColumn{Table: cell.Table, Column: cell.Column}
	if c.found[column] || c.fresh {
		return c.found[column], nil
	}
	catalogue, err := c.meta.Catalogue(ctx)
	if err != nil {
		return false, err
	}
	c.found, c.fresh = txn.WeakColumns(catalogue), true
	return c.found[column], nil
}

func (w *work) count(done *Stats) {
	s := w.cfg.Stats
	s.Fired.Add(done.Fired.Load())
	s.Moved.Add(done.Moved.Load())
	s.Dropped.Add(done.Dropped.Load())
	if done.Fired.Load() > 0 {
		s.Lag.Store(done.Lag.Load())
	}
}

// countPending counts the pending timers, up to a limit for each shard.
func (w *work) countPending(ctx context.Context, at mvcc.Timestamp) error {
	n := int64(0)
	for shard := range mvcc.TimerShards {
		span := mvcc.TimerSpan(shard, 0, 1<<63-1)
		span.Start = max(span.Start, w.shards[shard])
		w.cfg.Stats.Reads.Add(1)
		here := 0
		scan := txn.RecordScan{Span: span, At: at, Limit: mostCounted}
		for _, err := range w.cfg.Client.Records(ctx, scan) {
			if err != nil {
				return err
			}
			if here++; here == mostCounted {
				break
			}
		}
		n += int64(here)
	}
	w.cfg.Stats.Pending.Store(n)
	return nil
}

// separate splits the timers into their own tablet, so that writes of other tables do not trigger
// reads of timers, and so that it is split further as they grow. It is tried once per leadership;
// timers fire without it, too.
func (w *work) separate(ctx context.Context) {
	if w.apart || !slices.ContainsFunc(w.tablets, func(t Tablet) bool { return t.Shared }) {
		return
	}
	w.apart = true
	if err := w.cfg.Meta.SplitAt(ctx, mvcc.TimerTable, ""); err != nil {
		w.cfg.Logger.Warn("timers: cannot split the timers into a tablet of their own, so they and "+
			"other tables slow each other down", "error", err)
	}
}

// tablets asks the leaders of the tablets with timers for their applied changes. They respond
// from memory, and a quiescent one stays quiescent.
func tablets(ctx context.Context, c *txn.Client) (out []Tablet, err error) {
	for at := (wire.Position{Table: mvcc.TimerTable}); ; {
		resp, d, err := c.Send(ctx, at,
			&pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}})
		if err != nil {
			return nil, err
		}
		s := resp.GetStatus()
		out = append(out, Tablet{
			ID: d.GetTabletId(), Applied: s.GetAppliedIndex(),
			Shared: wire.StartOf(d).Table != mvcc.TimerTable,
		})
		end, bounded := wire.EndOf(d)
		if !bounded || end.Table > mvcc.TimerTable {
			return out, nil
		}
		at = end
	}
}

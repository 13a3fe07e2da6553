package scanner

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	sweepResolvers = 8           // most resolutions at once
	maxAlive       = 4096        // live transactions that the sweeper remembers
	alivePause     = time.Second // pause before it asks about a live transaction again
)

// sweeper walks the lock and intent groups of this node's tablets. Only its actor's goroutine
// uses it.
//
// It has every lock resolved whose transaction began more than sweepAge ago, whether it has
// expired or not: if the transaction is decided the lock is resolved at once; otherwise
// it stays until its worker is dead or it has expired by oracle time (design section 4, "A
// missing primary is not a rollback"). A clock that differs from the oracle's only makes the
// sweeper ask too early or too late.
type sweeper struct {
	cfg   Config
	stats *Stats
	alive map[mvcc.Timestamp]time.Time // by start timestamp: when to ask again
	next  int                          // index of the place walked last
	again *rechecks

	version     uint64                 // the survey behind the next three; 0: none
	local, open []*pb.TabletDescriptor // this node's tablets, and those that may hold locks
	walks       int                    // maximum number of places of a tablet in local
}

func newSweeper(cfg Config, stats *Stats) *sweeper {
	return &sweeper{
		cfg: cfg, stats: stats, alive: make(map[mvcc.Timestamp]time.Time),
		again: &rechecks{every: sweepRechecks * recheck},
	}
}

// swept is what the sweeper walks of one tablet at a time: the locks (group L) of one table, or the
// intents (group I) of one weak column.
type swept struct {
	tablet *pb.TabletDescriptor
	group  mvcc.Group
	table  mvcc.TableID
	column string
}

// turn walks as many places as its requests allow, from where the last turn stopped.
func (w *sweeper) turn(ctx context.Context) time.Duration {
	tablets, err := w.choose(ctx)
	if err != nil {
		w.stats.Errors.Add(1)
		return sweepPause
	}
	places := w.places(tablets)
	budget, resolved := w.cfg.Requests, false
	for range places {
		w.next = (w.next + 1) % len(places)
		if w.place(ctx, places[w.next], &budget) {
			resolved = true
		}
		if budget == 0 || ctx.Err() != nil {
			break
		}
	}
	if resolved {
		return paceBusy
	}
	return sweepPause
}

// choose returns the tablets of this node that may hold locks or intents, and those of the
// others that are due to be walked again.
func (w *sweeper) choose(ctx context.Context) ([]*pb.TabletDescriptor, error) {
	version := uint64(0)
	if w.cfg.Survey != nil {
		// Read the version first: later changes then have a later version.
		version = w.cfg.Survey.SettledVersion()
	}
	if version == 0 || version != w.version {
		asked, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		local, err := w.cfg.Places.Tablets(asked, true)
		if err != nil || w.cfg.Survey == nil {
			return local, err
		}
		w.version, w.local, w.open, w.walks = version, local, nil, 1
		for _, d := range local {
			w.walks = max(w.walks, 1+len(w.observed(d.GetTabletId())))
			if !w.cfg.Survey.Settled(d.GetTabletId()) {
				w.open = append(w.open, d)
			}
		}
	}
	out := slices.Clip(w.open)
	first, count := w.again.take(w.cfg.Now(), len(w.local), 1, w.walks)
	for i := range count {
		if d := w.local[(first+i)%len(w.local)]; w.cfg.Survey.Settled(d.GetTabletId()) {
			out = append(out, d)
		}
	}
	return out, nil
}

func (w *sweeper) places(tablets []*pb.TabletDescriptor) []swept {
	var out []swept
	for _, d := range tablets {
		tables := map[mvcc.TableID]bool{}
		add := func(id mvcc.TableID) {
			if _, ok := wire.Clip(d, mvcc.Span{Table: id}); ok && !tables[id] {
				tables[id] = true
				out = append(out, swept{tablet: d, group: mvcc.GroupLock, table: id})
			}
		}
		for _, t := range w.observed(d.GetTabletId()) {
			add(t.Table)
			if t.Weak && t.Class == mvcc.ClassData && tables[t.Table] {
				out = append(out, swept{
					tablet: d, group: mvcc.GroupIntent, table: t.Table, column: t.Column,
				})
			}
		}
	}
	return out
}

// observed returns the columns to look after in a tablet. They are not only those whose
// observers this process runs, because no node sees a change while it is locked.
func (w *sweeper) observed(tablet uint64) []notify.Target {
	if w.cfg.Observed == nil {
		return w.cfg.Targets
	}
	return w.cfg.Observed(tablet)
}

// place walks one place to its end, or until the requests are used up, and reports
// whether it resolved anything.
func (w *sweeper) place(ctx context.Context, p swept, budget *int) (resolved bool) {
	req := &pb.WalkRequest{
		Group: uint32(p.group), Table: uint32(p.table), Column: wire.Bytes(p.column),
		Limit: uint32(w.cfg.Page),
	}
	for *budget > 0 && ctx.Err() == nil {
		*budget--
		w.stats.Requests.Add(1)
		asked, cancel := context.WithTimeout(ctx, requestTimeout)
		resp, err := w.cfg.Walker.Walk(asked, p.tablet, req)
		cancel()
		if err != nil {
			w.stats.Errors.Add(1)
			return resolved
		}
		if w.resolve(ctx, w.old(resp.Entries)) {
			resolved = true
		}
		if resp.Done || len(resp.Entries) == 0 {
			return resolved
		}
		last := resp.Entries[len(resp.Entries)-1]
		// A new message, because its receiver may still use the old one.
		req = &pb.WalkRequest{
			Group: req.Group, Table: req.Table, Column: req.Column, Limit: req.Limit,
			FromRow: last.GetCell().GetRow(),
			After:   last.GetCell(), AfterTs: last.GetTs(),
		}
	}
	return resolved
}

// old returns the locks and intents whose transactions began long enough ago to be resolved.
func (w *sweeper) old(entries []*pb.WalkEntry) []mvcc.LockInfo {
	now := w.cfg.Now()
	before := now.Add(-sweepAge).UnixMilli()
	var out []mvcc.LockInfo
	for _, e := range entries {
		l := lockInfo(e)
		if l.Lock.StartTS.Millis() > before || now.Before(w.alive[l.Lock.StartTS]) {
			continue
		}
		out = append(out, l)
	}
	return out
}

// lockInfo converts an entry to the information for a transaction that encounters the lock.
func lockInfo(e *pb.WalkEntry) mvcc.LockInfo {
	if in := e.GetIntent(); in != nil {
		return mvcc.LockInfo{Cell: wire.Cell(e.GetCell()), Intent: true, Lock: mvcc.Lock{
			StartTS: mvcc.Timestamp(e.GetTs()), Primary: wire.Cell(in.GetPrimary()),
			Expiry: mvcc.Timestamp(in.GetExpiry()),
			Worker: wire.Worker(in.GetWorker()),
		}}
	}
	return mvcc.LockInfo{Cell: wire.Cell(e.GetCell()), Lock: wire.Lock(e.GetLock())}
}

// resolve resolves the locks, a few concurrently, and reports whether any was resolved.
func (w *sweeper) resolve(ctx context.Context, locks []mvcc.LockInfo) bool {
	type answer struct {
		resolved bool
		err      error
	}
	answers := make([]answer, len(locks))
	var group errgroup.Group
	group.SetLimit(sweepResolvers)
	for i, l := range locks {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			answers[i].resolved, answers[i].err = w.cfg.Resolver.ResolveLock(ctx, l)
			return nil
		})
	}
	_ = group.Wait()
	found := false
	for i, a := range answers {
		switch {
		case a.err != nil:
			w.stats.Errors.Add(1)
			w.cfg.Logger.Debug("scanner: lock not resolved", "error", a.err)
		case a.resolved:
			found = true
			w.stats.Resolved.Add(1)
		default:
			w.spare(locks[i].Lock.StartTS)
		}
	}
	return found
}

// spare leaves a live transaction alone for alivePause.
func (w *sweeper) spare(start mvcc.Timestamp) {
	if len(w.alive) >= maxAlive {
		clear(w.alive)
	}
	w.alive[start] = w.cfg.Now().Add(alivePause)
}

package hosting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/txn"
)

// Workers are processes that run observers and hold no data (docs/adr/0073). Each has a session with
// every node that it reaches. To this node a session is another dispatcher: scanners of its own offer
// it cells, under advisory locks of this node. The worker admits them as a local dispatcher does.

const (
	// maxWorkers bounds the sessions of a node: each has ownersPerWorker numbers of the node's
	// owners of advisory locks.
	maxWorkers      = ownersPerProcess/ownersPerWorker - 1
	ownersPerWorker = 256
	// workerScanners is the number of scanners of a session that scans.
	workerScanners = 2
	// workerLease is how long observers of a worker that has died count as linked, so that a
	// restart does not look like the end of an observer.
	workerLease = 10 * time.Second
	// deadFor is the time for which a node remembers a dead worker: longer than a worker's locks
	// last with the default LockTTL. maxDead is the maximum number of remembered workers.
	deadFor = time.Minute
	maxDead = 4096
)

// workers are the sessions of this node. Its methods may be called concurrently.
type workers struct {
	host *Host

	mu       sync.Mutex
	sessions map[int]*session              // by number, from 1 on
	started  int                           // sessions so far
	dead     map[uint64]time.Time          // by incarnation: until when a death is remembered
	leased   map[string]time.Time          // by observer: until when it counts as linked
	runs     map[string]*pb.ObserverStatus // by observer; see WorkerRuns

	list atomic.Pointer[[]*session] // sessions, in the order of their numbers; immutable
	turn atomic.Uint64              // next taker of hints, in rotation
}

func newWorkers(h *Host) *workers {
	w := &workers{
		host: h, sessions: map[int]*session{}, dead: map[uint64]time.Time{},
		leased: map[string]time.Time{}, runs: map[string]*pb.ObserverStatus{},
	}
	w.list.Store(&[]*session{})
	return w
}

// all returns the sessions.
func (w *workers) all() []*session { return *w.list.Load() }

// add gives the session a number, and lists it. Its worker no longer counts as dead. It fails if
// the node has maxWorkers sessions.
func (w *workers) add(s *session) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s.number = 1; w.sessions[s.number] != nil; s.number++ {
	}
	if s.number > maxWorkers {
		return &txn.ServerError{
			Code:       pb.Error_CODE_OVERLOADED,
			Message:    fmt.Sprintf("this node has %d workers, as many as it may have: use another node", maxWorkers),
			RetryAfter: time.Second,
		}
	}
	w.started++
	s.serial = w.started
	delete(w.dead, s.hello.GetIncarnation())
	w.sessions[s.number] = s
	w.publish()
	return nil
}

// remove removes the session, and reports whether it was listed. died reports that its worker has
// not left in good order.
func (w *workers) remove(s *session, died bool) (listed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.number == 0 || w.sessions[s.number] != s {
		return false
	}
	delete(w.sessions, s.number)
	w.publish()
	again := slices.ContainsFunc(w.all(), func(o *session) bool {
		return o.hello.GetIncarnation() == s.hello.GetIncarnation()
	})
	if !died || again {
		return true
	}
	now := time.Now()
	maps.DeleteFunc(w.dead, func(_ uint64, until time.Time) bool { return until.Before(now) })
	if len(w.dead) < maxDead {
		w.dead[s.hello.GetIncarnation()] = now.Add(deadFor)
	}
	for i := range s.observers {
		w.leased[s.observers[i].Spec.Name] = now.Add(workerLease)
	}
	return true
}

// publish renews the list. The caller holds mu.
func (w *workers) publish() {
	list := make([]*session, 0, len(w.sessions))
	for _, number := range slices.Sorted(maps.Keys(w.sessions)) {
		list = append(list, w.sessions[number])
	}
	w.list.Store(&list)
}

// names returns the observers of this process, of its workers, and of workers that have died within
// workerLease.
func (w *workers) names() []string {
	found := map[string]bool{}
	if x := w.host.runs.Load(); x != nil {
		for _, s := range x.dispatcher.Stats() {
			found[s.Name] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sessions {
		for i := range s.observers {
			found[s.observers[i].Spec.Name] = true
		}
	}
	for name, until := range w.leased {
		if time.Now().Before(until) {
			found[name] = true
		} else {
			delete(w.leased, name)
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// count adds to runs what a worker has done between two of its reports, last and own. The counts in
// runs do not fall when a worker ends or reports to another node. The first report, for which last
// is nil, adds nothing: another node may have counted what it contains. Observers beyond
// maxWorkObservers are not counted.
func (w *workers) count(last *[]*pb.ObserverStatus, own []*pb.ObserverStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range own {
		sum := w.runs[o.GetName()]
		if sum == nil {
			if len(w.runs) == maxWorkObservers {
				continue
			}
			sum = &pb.ObserverStatus{Name: o.GetName()}
			w.runs[o.GetName()] = sum
		}
		if last == nil {
			continue
		}
		at := slices.IndexFunc(*last, func(b *pb.ObserverStatus) bool { return b.GetName() == o.GetName() })
		if at < 0 {
			continue
		}
		before := (*last)[at]
		sum.Runs += max(o.GetRuns(), before.GetRuns()) - before.GetRuns()
		sum.Failures += max(o.GetFailures(), before.GetFailures()) - before.GetFailures()
		sum.RunUs += max(o.GetRunUs(), before.GetRunUs()) - before.GetRunUs()
	}
}

// WorkerRuns returns, for each observer of workers, its name and, while they reported to this node,
// the number and the total duration of its runs and the number of its failures. reporting is the
// number of workers that report to this node now.
func (h *Host) WorkerRuns() (runs []*pb.ObserverStatus, reporting int) {
	for _, s := range h.workers.all() {
		if s.scans.Load() {
			reporting++
		}
	}
	h.workers.mu.Lock()
	defer h.workers.mu.Unlock()
	for _, sum := range h.workers.runs {
		runs = append(runs, proto.CloneOf(sum))
	}
	return runs, reporting
}

// WorkerDead reports whether a worker that had a session with this node has died within deadFor. A
// worker that is alive but cut off from this node counts as dead: its transactions are then rolled
// back, and its runs repeat.
func (h *Host) WorkerDead(w mvcc.Worker) bool {
	h.workers.mu.Lock()
	defer h.workers.mu.Unlock()
	until, ok := h.workers.dead[w.Incarnation]
	return ok && w.Node == 0 && time.Now().Before(until)
}

// hint passes cells that have become dirty to one of those who run their observers: in turn, this
// process and its workers.
func (h *Host) hint(cells []mvcc.Cell) {
	var takers []*scanner.Scanners
	if own := h.ownScanners(); own != nil {
		takers = append(takers, own)
	}
	sessions := h.workers.all()
	if len(sessions) == 0 {
		for _, own := range takers {
			own.Hint(cells)
		}
		return
	}
	for _, s := range sessions {
		if found := s.scanners.Load(); found != nil && !s.leaving.Load() {
			takers = append(takers, found)
		}
	}
	share(cells, takers, int(h.workers.turn.Add(1)%(1<<20)))
}

// share hints each cell to the first of takers that takes it, beginning with the given one, so that
// the cells of one call are mostly of one batch. A cell that no taker takes, because each looks for
// other columns, is paused or has a backlog, is dropped: scanners submit it later, in order.
func share(cells []mvcc.Cell, takers []*scanner.Scanners, first int) {
	parts := make([][]mvcc.Cell, len(takers))
	for _, c := range cells {
		for i := range takers {
			if at := (first + i) % len(takers); takers[at].Takes(c) {
				parts[at] = append(parts[at], c)
				break
			}
		}
	}
	for i, part := range parts {
		if len(part) > 0 {
			takers[i].Hint(part)
		}
	}
}

// wake makes all scanners of this node look for the cells that a worker has left: at once, and again
// after 300 ms and 600 ms for those that were too young.
func (w *workers) wake() {
	now := func() {
		if w.host.cfg.Life.Err() != nil {
			return
		}
		if own := w.host.ownScanners(); own != nil {
			own.Wake()
		}
		for _, s := range w.all() {
			if found := s.scanners.Load(); found != nil {
				found.Wake()
			}
		}
	}
	now()
	for _, later := range []time.Duration{300, 600} {
		time.AfterFunc(later*time.Millisecond, now)
	}
}

// apply has all sessions honour the catalogue, all at once. The caller holds applying.
func (w *workers) apply(ctx context.Context, c *pb.Catalogue) error {
	sessions := w.all()
	failed := make([]error, len(sessions))
	settings := make([]*settings, len(sessions))
	for i, s := range sessions {
		if settings[i], failed[i] = w.host.settle(ctx, s, c, false); failed[i] == nil {
			failed[i] = w.host.scanFor(ctx, s, settings[i])
		}
	}
	var telling sync.WaitGroup
	for i, s := range sessions {
		if settings[i] != nil {
			telling.Go(func() { failed[i] = errors.Join(failed[i], s.applied(ctx, settings[i])) })
		}
	}
	telling.Wait()
	return errors.Join(failed...)
}

// scanned returns own with the columns that sessions scan.
func (w *workers) scanned(own []notify.Target) []notify.Target {
	for _, s := range w.all() {
		if s.scans.Load() {
			own = append(own, s.settings.Load().targets...)
		}
	}
	return own
}

// suspect tells all workers that a process has died.
func (w *workers) suspect() {
	for _, s := range w.all() {
		s.tell(&pb.WorkResponse{Settings: w.host.withSuspect(s.settings.Load().message)})
	}
}

// refused tells the workers that report to this node, other than the one that says so, that an
// external service refuses the observer for d.
func (w *workers) refused(by *session, name string, d time.Duration) {
	for _, s := range w.all() {
		if s != by && s.scans.Load() {
			s.tell(&pb.WorkResponse{Refused: &pb.WorkRefusal{
				Observer: name, WaitMs: uint64(d.Milliseconds()),
			}})
		}
	}
}

// relinkSoon records the observers that are linked once the leases of dead workers have ended.
func (w *workers) relinkSoon() {
	time.AfterFunc(workerLease+time.Second, func() {
		ctx, cancel := context.WithTimeout(w.host.cfg.Life, relinkTimeout)
		defer cancel()
		if err := w.host.relinkNames(ctx); err != nil && w.host.cfg.Life.Err() == nil {
			w.host.cfg.Node.Logger.Warn("the end of a worker could not be recorded; its observers count as linked "+
				"until another worker comes or goes", "error", err)
		}
	})
}

// relinkNames is link for a caller that does not hold applying.
func (h *Host) relinkNames(ctx context.Context) error {
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	return h.link(ctx)
}

package hosting

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/config"
)

// notifications holds the parts that find dirty cells and run observers (§2.4): the
// dispatcher, which lives as long as the node, and the scanners, which are started anew
// when an observed table was made anew. Both are actors. Cells that one of them has in
// hand are in memory only: what is not acknowledged is found again, here or on another
// node.
type runner struct {
	dispatcher *observer.Dispatcher
	scanners   atomic.Pointer[scanner.Scanners]
	crashes    *crashHorizon

	// What the scanners look for, how often they were started, and whether stop has
	// begun. Guarded by applying.
	scanned []notify.Target
	starts  int
	ended   bool
}

// Start enters the observers in the catalogue, as far as that is possible now, and starts
// the dispatcher and the scanners. Open's goroutine calls it.
func (h *Host) Start(ctx context.Context, r *percolator.Registry) error {
	registered, err := h.registration.begin(ctx, r)
	if err != nil {
		return err
	}
	if h.cfg.Node.ObserverWorkers == 0 { // none runs here: others may link them
		registered = nil
	}
	crashes := &crashHorizon{}
	crashes.advance(h.cfg.Client.OracleTime()) // this node may have died of what it ran last
	dispatcher, err := observer.Spawn(h.cfg.System, observer.Config{
		Observers: registered, Client: observer.NewClient(h.cfg.Client),
		Workers: h.cfg.Node.ObserverWorkers, Logger: h.cfg.Node.Logger,
		FailureBase: h.cfg.Node.Notifications.FailurePause,
		FailureMax:  h.cfg.Node.Notifications.FailurePauseMax,
		// An observer's function finds the database in its context (percolator.DBFrom).
		Context: func(ctx context.Context) context.Context {
			return handle.WithDB(ctx, handle.NewDB(h.cfg.Client))
		},
		Suspect: crashes.get, Traces: h.cfg.Traces,
	})
	if err != nil {
		return err
	}
	x := &runner{dispatcher: dispatcher, crashes: crashes}
	// Stored before anything is read, so that no change of the catalogue falls in
	// between: one that comes now is applied to x.
	h.runs.Store(x)
	// Other nodes and operators learn here what this process runs. They forget it when
	// gossip knows that the process has ended.
	if err := h.cfg.Catalogue.Link(ctx, h.cfg.Worker, namesOf(registered)); err != nil {
		return fmt.Errorf("hosting: record which observers this node runs: %w", err)
	}
	// Since runs was stored above, another goroutine may be applying the catalogue.
	h.applying <- struct{}{}
	defer func() { <-h.applying }()
	// Before anything can run: a pause outlives the process. Tablets that are away are
	// told later.
	if err := h.applyCatalogueLocked(ctx); err != nil && !errors.Is(err, meta.ErrUntold) {
		return fmt.Errorf("hosting: apply the observer catalogue: %w", err)
	}
	return h.startScanners(x)
}

// infoOf returns an observer's entry in the catalogue.
func infoOf(o percolator.ObserverSpec, table mvcc.TableID) *pb.ObserverInfo {
	return &pb.ObserverInfo{
		Name: o.Name, Table: uint32(table), TableName: o.Column.Table,
		Column: []byte(o.Column.Name), Weak: o.Weak,
	}
}

// namesOf returns the observers' names.
func namesOf(observers []observer.Registered) []string {
	out := make([]string, 0, len(observers))
	for _, o := range observers {
		out = append(out, o.Spec.Name)
	}
	return out
}

// startScanners starts the scanners for the columns that the dispatcher is linked to now.
// The caller holds applying, and has stopped the scanners of before.
func (h *Host) startScanners(x *runner) error {
	owner, _ := LockOwners(h.cfg.Self.NodeID, h.cfg.Self.Incarnation)
	tune, targets := h.cfg.Node.Notifications, x.dispatcher.Targets()
	cfg := scanner.Config{
		Targets: targets, Paused: x.dispatcher.Paused, Dispatcher: x.dispatcher,
		Places: places{h.cfg.Router},
		Owner:  owner,
		Walker: scanner.NewWalker(h.cfg.Client.Transport()), Resolver: h.cfg.Client,
		Survey: h.cfg.Survey, Observed: h.cfg.Observed,
		Hints: hintsOf(tune), Scanners: h.cfg.Node.Scanners, Page: tune.ScanPage,
		PaceMin: tune.ScanPause, Logger: h.cfg.Node.Logger,
		PaceMax: tune.ScanPauseMax, Young: tune.Young,
		// After some quick restarts the oracle is far ahead of the clock: by the clock,
		// what a crash has left would look too young to be touched for as long.
		Now: h.cfg.Client.OracleTime, Traces: h.cfg.Traces,
	}
	if h.cfg.Node.Scanners == 0 {
		cfg.Scanners = -1 // 0 would mean the default
	}
	// The locks only save work: without them, two nodes may run an observer for one cell,
	// and the transactions see to it that only one of them commits.
	if !tune.NoLockd {
		cfg.Locker = h.locker
	}
	// Each start gives the actors names of their own.
	if x.starts++; x.starts > 1 {
		cfg.Name = fmt.Sprintf("scanner-again-%d", x.starts)
	}
	scanners, err := scanner.Spawn(h.cfg.System, cfg)
	if err != nil {
		return err
	}
	// Hints go to the scanners that were started last; those of before are stopped, and
	// drop what still comes.
	x.scanners.Store(scanners)
	x.scanned = targets
	// A node without scanners asks nobody which tablets are clean.
	if h.cfg.Node.Scanners > 0 {
		h.cfg.Survey.SetTargets(targets)
	}
	if !tune.NoHints {
		h.cfg.SetHint(scanners.Hint)
	}
	return nil
}

// hintsOf returns how the scanners treat hints.
func hintsOf(t config.Notifications) scanner.Hints {
	switch {
	case t.NoHints:
		return scanner.HintsOff
	case t.DuplicateHints:
		return scanner.HintsTwice
	}
	return scanner.HintsOn
}

// places is the tablet map as scanners see it. It owns nothing.
type places struct {
	router *route.Router
}

// Tablets implements scanner.Places. It returns the tablets that this node leads, or all
// that it knows of, without meta's, which has no observers.
func (p places) Tablets(_ context.Context, local bool) ([]*pb.TabletDescriptor, error) {
	all := p.router.All()
	if local {
		all = p.router.LedHere()
	}
	// Both are in range order, and meta's range is below all of users' tables.
	for i, d := range all {
		if wire.StartOf(d).Table >= mvcc.FirstUserTable {
			return all[i:], nil
		}
	}
	return nil, nil
}

// Stop ends the scanners and the dispatcher. It takes applying first, so that nobody
// starts scanners anew after this.
func (h *Host) Stop(ctx context.Context) error {
	x := h.runs.Load()
	if x == nil { // start did not get so far
		return nil
	}
	// An apply that is under way finishes first. If it takes longer than ctx, the parts
	// are stopped all the same.
	select {
	case h.applying <- struct{}{}:
		x.ended = true
		<-h.applying
	case <-ctx.Done():
	}
	// A hint that is being given now still reaches the scanners, which drop it.
	h.cfg.SetHint(nil)
	return x.stop(ctx)
}

// NoteCrash has the dispatcher handle with care everything that has changed until now: a
// process has died, perhaps of running an observer on it.
func (h *Host) NoteCrash() {
	if x := h.runs.Load(); x != nil {
		x.crashes.advance(h.cfg.Client.OracleTime())
	}
}

// Stop waits for the runs that are under way, as far as ctx allows. Scanners end first,
// so that nothing more is submitted.
func (x *runner) stop(ctx context.Context) error {
	var errs []error
	if s := x.scanners.Load(); s != nil {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(append(errs, x.dispatcher.Stop(ctx))...)
}

// rowsTimeout bounds the wait for the dispatcher's word on single rows: it never waits
// itself, but may have a lot to do.
const rowsTimeout = 100 * time.Millisecond

// observerRows returns the rows as messages have them.
func observerRows(rows []observer.Row) []*pb.ObserverRow {
	var out []*pb.ObserverRow
	for _, r := range rows {
		out = append(out, &pb.ObserverRow{
			Row: wire.Bytes(r.Row), RunningMs: uint64(r.Running.Milliseconds()), Overdue: r.Overdue,
			Retries: uint32(r.Retries), Unserved: uint32(r.Unserved), Runs: uint32(r.Runs),
		})
	}
	return out
}

// status describes the observers of this process; none if x is nil. It waits for the
// dispatcher up to rowsTimeout, and then leaves the rows out.
func (x *runner) status() []*pb.ObserverStatus {
	if x == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rowsTimeout)
	defer cancel()
	rows, err := x.dispatcher.Rows(ctx)
	stats := x.dispatcher.Stats()
	if err != nil { // the counters are there all the same
		rows = make([][]observer.Row, len(stats))
	}
	out := make([]*pb.ObserverStatus, 0, len(stats))
	// rows and stats are both in the order of registration.
	for i, s := range stats {
		out = append(out, &pb.ObserverStatus{
			Name: s.Name, Table: s.Table, Column: []byte(s.Column), Weak: s.Weak, Runs: s.Runs,
			Commits:   s.Commits,
			Conflicts: s.Conflicts, Failures: s.Failures, Parked: s.Parked, Skipped: s.Skipped,
			Running:     uint32(s.Running),
			Unavailable: s.Unavailable, Collapsed: s.Collapsed, Queued: uint32(s.Queued),
			Waiting: uint32(s.Waiting),
			Stuck:   uint32(s.Stuck), Paused: s.Paused, Limit: uint32(s.Limit),
			Contended: uint32(s.Contended), Unserved: uint32(s.Unserved),
			Rows: observerRows(rows[i]),
		})
	}
	return out
}

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
)

// runner holds the parts that find dirty cells and run observers (§2.4): the dispatcher, which
// lives as long as the node, and the scanners, which restart when an observed table was
// re-created. Both are actors. Their queues are in memory only: a change without an
// acknowledgment is found again, here or on another node.
type runner struct {
	dispatcher *observer.Dispatcher
	scanners   atomic.Pointer[scanner.Scanners]
	crashes    *crashHorizon

	// Guarded by applying.
	scanned []notify.Target // targets of the scanners
	starts  int             // of the scanners
	ended   bool            // Stop has begun
}

// Start enters the observers in the catalogue, as far as that is possible now, and starts the
// dispatcher and the scanners. It is called once, before any other goroutine stops the Host.
func (h *Host) Start(ctx context.Context, r *percolator.Registry) error {
	registered, err := h.registration.begin(ctx, r)
	if err != nil {
		return err
	}
	if h.cfg.Node.ObserverWorkers == 0 { // this node runs none; other nodes may
		registered = nil
	}
	crashes := &crashHorizon{}
	crashes.advance(h.cfg.Client.OracleTime()) // the previous process may have died of its last run
	dispatcher, err := observer.Spawn(h.cfg.System, observer.Config{
		Observers: registered, Client: observer.NewClient(h.cfg.Client),
		Workers: h.cfg.Node.ObserverWorkers, LoopRuns: h.cfg.Node.ObserverLoopRuns, Logger: h.cfg.Node.Logger,
		FailureBase: h.cfg.Node.Notifications.FailurePause,
		FailureMax:  h.cfg.Node.Notifications.FailurePauseMax,
		// An observer's function finds the database in its context (percolator.DBFrom).
		Context: func(ctx context.Context) context.Context {
			return handle.WithDB(ctx, handle.NewDB(h.cfg.Client))
		},
		Suspect: crashes.get, Traces: h.cfg.Traces, Refused: h.tellRefused,
		Versions: h.cfg.Versions,
	})
	if err != nil {
		return err
	}
	x := &runner{dispatcher: dispatcher, crashes: crashes}
	// Stored before the catalogue is read, so that no change of it is missed: a change that
	// arrives now is applied to x.
	h.runs.Store(x)
	// Other nodes and operators read there what this process runs. The record ends when gossip
	// reports the end of the process.
	if err := h.cfg.Catalogue.Link(ctx, h.cfg.Worker, namesOf(registered)); err != nil {
		return fmt.Errorf("hosting: record which observers this node runs: %w", err)
	}
	// Since runs was stored above, another goroutine may be applying the catalogue.
	h.applying <- struct{}{}
	defer func() { <-h.applying }()
	// Before anything runs: a pause outlives the process. Tablets without a leader learn of the
	// catalogue later.
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

// startScanners starts the scanners for the columns to which the dispatcher is linked. The
// caller holds applying, and has stopped the previous scanners.
func (h *Host) startScanners(x *runner) error {
	owner, _ := LockOwners(h.cfg.Self.NodeID, h.cfg.Self.Incarnation)
	tune, targets := h.cfg.Node.Notifications, x.dispatcher.Targets()
	cfg := scanner.Config{
		Targets: targets, Paused: x.dispatcher.Paused, Dispatcher: x.dispatcher,
		Places: places{h.cfg.Router},
		Owner:  owner,
		Walker: scanner.NewWalker(h.cfg.Client.Transport()), Resolver: h.cfg.Client,
		Survey: h.cfg.Survey, Observed: h.cfg.Observed,
		Hints: h.hints(), Scanners: h.cfg.Node.Scanners, Page: tune.ScanPage,
		PaceMin: tune.ScanPause, Logger: h.cfg.Node.Logger,
		PaceMax: tune.ScanPauseMax, Young: tune.Young,
		// After several quick restarts the oracle is far ahead of the clock, by which locks that
		// a crash has left would look too young to resolve.
		Now: h.cfg.Client.OracleTime, Traces: h.cfg.Traces,
	}
	if h.cfg.Node.Scanners == 0 {
		cfg.Scanners = -1 // 0 would mean the default
	}
	// The locks only save work: without them two nodes may run an observer for one cell, of
	// which one commits.
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
	// Hints go to the scanners that were started last; earlier ones are stopped and drop theirs.
	x.scanners.Store(scanners)
	x.scanned = targets
	// A node without scanners needs no survey.
	if h.cfg.Node.Scanners > 0 {
		h.cfg.Survey.SetTargets(targets)
	}
	if !tune.NoHints {
		h.cfg.SetHint(scanners.Hint)
	}
	return nil
}

// hints returns the hint mode of the configuration.
func (h *Host) hints() scanner.Hints {
	switch {
	case h.cfg.Node.Notifications.NoHints:
		return scanner.HintsOff
	case h.cfg.DuplicateHints:
		return scanner.HintsTwice
	}
	return scanner.HintsOn
}

// places implements scanner.Places by the tablet map of the node.
type places struct {
	router *route.Router
}

// Tablets implements scanner.Places. It returns the tablets led here, or all known ones,
// without meta, which has no observers.
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

// Stop stops the scanners and the dispatcher, and waits for runs as far as ctx allows. It
// acquires applying first, so that no scanner starts after it.
func (h *Host) Stop(ctx context.Context) error {
	x := h.runs.Load()
	if x == nil { // start did not get so far
		return nil
	}
	// An apply in flight finishes first. If it takes longer than ctx, the parts are stopped
	// anyway.
	select {
	case h.applying <- struct{}{}:
		x.ended = true
		<-h.applying
	case <-ctx.Done():
	}
	// A hint in flight still reaches the scanners, which drop it.
	h.cfg.SetHint(nil)
	return x.stop(ctx)
}

// NoteCrash makes the dispatcher treat all changes until now as suspect: a process has died,
// possibly of running an observer on one of them.
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

// rowsTimeout bounds the wait for the dispatcher's list of rows. The dispatcher never blocks,
// but may be busy.
const rowsTimeout = 100 * time.Millisecond

// observerRows converts rows to messages.
func observerRows(rows []observer.Row) []*pb.ObserverRow {
	var out []*pb.ObserverRow
	for _, r := range rows {
		out = append(out, &pb.ObserverRow{
			Row: wire.Bytes(r.Row), RunningMs: uint64(r.Running.Milliseconds()), Overdue: r.Overdue,
			Retries: uint32(r.Retries), Unserved: uint32(r.Unserved), Runs: uint32(r.Runs),
			Cycle: r.Cycle, PauseMs: uint64(r.Pause.Milliseconds()),
		})
	}
	return out
}

// status describes the observers of this process; none if x is nil. It waits up to rowsTimeout
// for the rows, and then omits them.
func (x *runner) status() []*pb.ObserverStatus {
	if x == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rowsTimeout)
	defer cancel()
	rows, err := x.dispatcher.Rows(ctx)
	stats := x.dispatcher.Stats()
	if err != nil { // the counters do not depend on the dispatcher's turn
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
			Refused: s.Refused, Outside: outsideWait(s.Outside, time.Now()),
			Version: s.Version,
			Rows:    observerRows(rows[i]),
		})
	}
	return out
}

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
// lives as long as the node, and the scanners, which restart when the columns to scan change.
// Both are actors. Their queues are in memory only: a change without an acknowledgment is found
// again, here or on another node.
type runner struct {
	dispatcher *observer.Dispatcher
	scanners   atomic.Pointer[scanner.Scanners]
	crashes    *crashHorizon

	// Guarded by applying.
	scanned []notify.Target // targets of the scanners
	starts  int             // number of starts of the scanners
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
	// Store x before the catalogue is read, so that no change of the catalogue is missed: one that
	// arrives now is applied to x.
	h.runs.Store(x)
	// Since runs was stored above, another goroutine may be applying the catalogue, or a worker may be
	// connecting, which changes what link records.
	h.applying <- struct{}{}
	defer h.unlock()
	// Other nodes and operators read in meta which observers this process runs. The record ends
	// when gossip reports the end of the process.
	if err := h.link(ctx); err != nil {
		return err
	}
	// The catalogue is applied before anything runs, since pauses survive the process. Tablets
	// without a leader receive it later.
	if err := h.applyCatalogueLocked(ctx); err != nil && !errors.Is(err, meta.ErrUntold) {
		return fmt.Errorf("hosting: apply the observer catalogue: %w", err)
	}
	if err := h.startScanners(x); err != nil {
		return err
	}
	if !h.cfg.Node.Notifications.NoHints {
		h.cfg.SetHint(h.hint)
	}
	return nil
}

// link records in meta which observers this node and its workers run. The caller holds applying, so
// that the record follows the newest change.
func (h *Host) link(ctx context.Context) error {
	if err := h.cfg.Catalogue.Link(ctx, h.cfg.Worker, h.workers.names()); err != nil {
		return fmt.Errorf("hosting: record which observers this node runs: %w", err)
	}
	return nil
}

// infoOf returns an observer's entry in the catalogue.
func infoOf(o percolator.ObserverSpec, table mvcc.TableID) *pb.ObserverInfo {
	return &pb.ObserverInfo{
		Name: o.Name, Table: uint32(table), TableName: o.Column.Table,
		Column: []byte(o.Column.Name), Weak: o.Weak,
	}
}

// startScanners starts the scanners for the columns to which the dispatcher is linked. The
// caller holds applying, and has stopped the previous scanners.
func (h *Host) startScanners(x *runner) error {
	targets := x.dispatcher.Targets()
	cfg := h.scannerConfig(targets)
	cfg.Paused, cfg.Dispatcher = x.dispatcher.Paused, x.dispatcher
	cfg.Owner, _ = LockOwners(h.cfg.Self.NodeID, h.cfg.Self.Incarnation)
	cfg.Resolver, cfg.Observed = h.cfg.Client, h.cfg.Observed
	cfg.Scanners = h.cfg.Node.Scanners
	if h.cfg.Node.Scanners == 0 {
		cfg.Scanners = -1 // 0 would mean the default
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
	h.survey(x)
	return nil
}

// scannerConfig is what the scanners of this node's observers and those of its workers have in
// common.
func (h *Host) scannerConfig(targets []notify.Target) scanner.Config {
	tune := h.cfg.Node.Notifications
	cfg := scanner.Config{
		Targets: targets, Places: places{h.cfg.Router},
		Walker: scanner.NewWalker(h.cfg.Client.Transport()), Survey: h.cfg.Survey,
		Hints: h.hints(), Page: tune.ScanPage, PaceMin: tune.ScanPause, Logger: h.cfg.Node.Logger,
		PaceMax: tune.ScanPauseMax, MinAge: tune.Young,
		// The oracle's time and not the clock's: after several quick restarts the oracle is far
		// ahead, and by the clock the locks left by a crash would look too young to resolve.
		Now: h.cfg.Client.OracleTime, Traces: h.cfg.Traces,
	}
	// The locks only save work: without them two nodes may run an observer for one cell, and, if it
	// is strong, only one of the runs commits.
	if !tune.NoLockd {
		cfg.Locker = h.locker
	}
	return cfg
}

// survey reports to the other nodes which columns this node's scanners look for, those of its own
// observers, unless Scanners is 0, and those of its workers. The caller holds applying.
func (h *Host) survey(x *runner) {
	var targets []notify.Target
	if h.cfg.Node.Scanners > 0 {
		targets = append(targets, x.scanned...)
	}
	h.cfg.Survey.SetTargets(h.workers.scanned(targets))
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
	// Both lists are in range order, and meta's range is below all of users' tables.
	for i, d := range all {
		if wire.StartOf(d).Table >= mvcc.FirstUserTable {
			return all[i:], nil
		}
	}
	return nil, nil
}

// Stop stops the scanners and the dispatcher, and waits for runs as far as ctx allows. Unless ctx
// ends first, it acquires applying before, so that no scanner starts after it.
func (h *Host) Stop(ctx context.Context) error {
	x := h.runs.Load()
	if x == nil { // Start did not create the runner
		return nil
	}
	// An apply in flight finishes first. If it takes longer than ctx, the parts are stopped
	// anyway.
	if h.lock(ctx) == nil {
		x.ended = true
		h.unlock()
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
		h.workers.suspect()
	}
}

// stop stops the scanners and then the dispatcher, so that nothing more is submitted, and waits for
// the runs that are under way, as far as ctx allows.
func (x *runner) stop(ctx context.Context) error {
	var errs []error
	if s := x.scanners.Load(); s != nil {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(append(errs, x.dispatcher.Stop(ctx))...)
}

// crashHorizon is the time at which this node last learned that a process had died. That process
// may have died of running an observer for a change up to this timestamp; so the dispatcher records
// an attempt before it runs an observer for such a change. The process is this node's previous one,
// another node's or a worker's.
//
// The timestamp only grows. It is safe for concurrent use: the worker of changes advances
// it, the dispatcher reads it.
type crashHorizon struct{ until atomic.Uint64 }

// advance sets the timestamp to now, a time by the oracle's clock, unless it is later
// already.
func (h *crashHorizon) advance(now time.Time) {
	ts := uint64(mvcc.TimestampAt(now.UnixMilli()))
	for before := h.until.Load(); before < ts && !h.until.CompareAndSwap(before, ts); {
		before = h.until.Load()
	}
}

// get returns the timestamp.
func (h *crashHorizon) get() mvcc.Timestamp { return mvcc.Timestamp(h.until.Load()) }

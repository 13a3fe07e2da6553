package hosting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/txn"
)

// WorkStream is the node's side of a worker's session, as gRPC has it: its context ends when Serve
// returns.
type WorkStream interface {
	Send(*pb.WorkResponse) error
	Recv() (*pb.WorkRequest, error)
}

const (
	// workBeat is the longest pause between two messages of either side, which may be empty, and
	// workSilence the time without a message after which the other side counts as dead.
	workBeat    = 200 * time.Millisecond
	workSilence = 800 * time.Millisecond
	// helloTimeout bounds the wait for the first message.
	helloTimeout = 5 * time.Second
	// maxWorkObservers bounds the observers of one worker.
	maxWorkObservers = 1024
)

// Serve serves the session of a worker until ctx or the session ends, and returns the reason, nil
// if the worker has left. may reports why the worker may not observe a table. Serve's goroutine
// handles the worker's messages; two others read and write the stream, and end when the caller has
// returned from the stream's handler.
func (h *Host) Serve(ctx context.Context, stream WorkStream, may func(table uint32) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, broken := make(chan *pb.WorkRequest), make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				broken <- err
				return
			}
			select {
			case in <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	var first *pb.WorkRequest
	select {
	case first = <-in:
	case err := <-broken:
		return err
	case <-time.After(helloTimeout):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := h.checkHello(first.GetHello()); err != nil {
		return err
	}
	s := newSession(h, first.GetHello(), may)
	go func() {
		for {
			select {
			case m := <-s.out:
				if stream.Send(m) != nil { // the reading goroutine sends the reason to broken
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return h.run(ctx, s, in, broken)
}

// checkHello checks the first message of a worker.
func (h *Host) checkHello(m *pb.WorkHello) error {
	refuse := func(format string, args ...any) error {
		return &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case m == nil:
		return refuse("the first message of a worker must register its observers, within %v",
			helloTimeout)
	case m.GetClusterId() != h.cfg.Self.ClusterID:
		return refuse("this node belongs to another cluster than the worker's")
	case len(m.GetObservers()) == 0 || len(m.GetObservers()) > maxWorkObservers:
		return refuse("a worker must have 1 to %d observers, not %d", maxWorkObservers, len(m.GetObservers()))
	case m.GetCredit() == 0 || m.GetIncarnation() == 0:
		return refuse("a worker must have a credit and an incarnation")
	}
	return nil
}

// run handles the session until it ends.
func (h *Host) run(ctx context.Context, s *session, in <-chan *pb.WorkRequest,
	broken <-chan error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	registered := make(chan error, 1)
	s.tasks.Go(func() { registered <- h.register(ctx, s) })
	died := false
	defer func() {
		cancel()
		h.endSession(s, died)
	}()
	beat := time.NewTicker(workBeat)
	defer beat.Stop()
	for heard := time.Now(); ; {
		select {
		case m := <-in:
			heard = time.Now()
			s.take(m)
			if m.GetScans() && !s.scans.Swap(true) {
				s.tasks.Go(func() { h.scanAll(ctx, s) })
			}
		case err := <-registered:
			if err != nil {
				return err
			}
			registered = nil
		case err := <-broken:
			if died = !errors.Is(err, io.EOF) || !s.leaving.Load(); died {
				return err
			}
			return nil
		case <-beat.C:
			if silence := time.Since(heard); silence > workSilence {
				died = true
				return txn.Errorf("%w: the worker has been silent for %v", txn.ErrUnavailable, silence)
			}
			for _, o := range s.settings.Load().message.GetObservers() {
				if err := s.may(o.GetTable()); err != nil {
					return err
				}
			}
			select {
			case s.out <- &pb.WorkResponse{}:
			default: // another message is queued
			}
		case <-ctx.Done():
			// The cause Canceled means that the stream has ended; any other, that the node stops.
			died = errors.Is(context.Cause(ctx), context.Canceled) && !s.leaving.Load()
			return context.Cause(ctx)
		}
	}
}

// register enters the worker's observers in the catalogue, and starts to offer it cells. An error
// means that the worker cannot be served, or not yet.
func (h *Host) register(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	x := h.runs.Load()
	if x == nil || x.scanners.Load() == nil || x.ended {
		return txn.Errorf("%w: the node is starting or stopping", txn.ErrUnavailable)
	}
	c, err := h.cfg.Catalogue.Catalogue(ctx)
	if err != nil {
		return err
	}
	settings, err := h.settle(ctx, s, c, true)
	if err != nil {
		return err
	}
	if err := h.workers.add(s); err != nil {
		return err
	}
	// The settings precede the first offer on the stream, and the worker applies them in order.
	first := h.withSuspect(settings.message)
	select {
	case s.out <- &pb.WorkResponse{Settings: first}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := h.scanFor(ctx, s, settings); err != nil {
		return err
	}
	h.cfg.Node.Logger.Info("a worker is connected", "incarnation", s.hello.GetIncarnation(),
		"observers", len(s.observers))
	return h.link(ctx)
}

// settle makes settings for the session's observers from the catalogue, after it has entered those
// that are missing. With strict it also fails if an observer cannot be entered. The caller holds
// applying.
func (h *Host) settle(ctx context.Context, s *session, c *pb.Catalogue, strict bool) (*settings, error) {
	var missing []*pb.ObserverInfo
	for i := range s.observers {
		o := &s.observers[i]
		info := entryOf(c, o)
		if strict && info != nil {
			if err := usable(info, o); err != nil {
				return nil, err
			}
		}
		if info != nil {
			continue
		}
		t, err := h.cfg.Schema.Table(ctx, o.Spec.Column.Table)
		switch {
		case err != nil:
			return nil, err
		case t == nil && strict:
			return nil, &txn.ServerError{Code: pb.Error_CODE_NO_TABLE, Message: fmt.Sprintf(
				"there is no table %q, which observer %q observes", o.Spec.Column.Table, o.Spec.Name)}
		case t == nil, uint32(o.Table) == t.Id: // dropped; or retired, and its entry was removed
			continue
		}
		added := infoOf(o.Spec, 0)
		added.Table = t.Id
		switch {
		case !meta.Awaits(c, added):
			missing = append(missing, added)
		case strict:
			return nil, retiring(o)
		}
	}
	if len(missing) > 0 {
		entered, err := h.cfg.Catalogue.Enter(ctx, missing)
		if err != nil {
			return nil, err
		}
		c = entered
		told, cancel := context.WithTimeout(ctx, relinkTimeout)
		defer cancel()
		if err := h.cfg.Catalogue.Sync(told); err != nil {
			h.registration.retry(err)
		}
	}
	out := &settings{}
	var infos []*pb.ObserverInfo
	out.targets, out.held, infos = s.targetsOf(c)
	for _, info := range infos {
		if err := s.may(info.GetTable()); err != nil && strict {
			return nil, err
		}
	}
	out.message = &pb.WorkSettings{Version: c.GetVersion(), Observers: infos}
	return out, nil
}

// entryOf returns the catalogue's entry of the observer; nil if it has none, or one of a dropped
// table.
func entryOf(c *pb.Catalogue, o *observer.Registered) *pb.ObserverInfo {
	for _, have := range c.GetObservers() {
		if have.Name == o.Spec.Name && have.TableName == o.Spec.Column.Table &&
			string(have.Column) == o.Spec.Column.Name && !meta.IsDropped(c, have.Table) {
			return have
		}
	}
	return nil
}

// usable returns an error if a worker cannot run its observer by the catalogue's entry.
func usable(info *pb.ObserverInfo, o *observer.Registered) error {
	switch {
	case info.GetRetired():
		return retiring(o)
	case info.GetWeak() != o.Spec.Weak:
		return &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: fmt.Sprintf(
			"observer %q is registered with the other kind (strong or weak)", o.Spec.Name)}
	}
	return nil
}

func retiring(o *observer.Registered) error {
	return &txn.ServerError{Code: pb.Error_CODE_UNAVAILABLE, Message: fmt.Sprintf(
		"observer %q is being retired, and its notifications are still being removed: retry later, or do not "+
			"register it", o.Spec.Name)}
}

// scanFor puts settings into force on this node: it starts the session's scanners, again if they
// look for other columns. The caller holds applying.
func (h *Host) scanFor(ctx context.Context, s *session, x *settings) error {
	s.settings.Store(x)
	scans := s.scans.Load()
	old := s.scanners.Load()
	if old != nil && slices.Equal(s.scanned, x.targets) {
		return nil
	}
	if old != nil {
		if err := old.Stop(ctx); err != nil {
			return fmt.Errorf("hosting: stop the scanners of a worker: %w", err)
		}
	}
	cfg := h.scannerConfig(x.targets)
	cfg.Dispatcher, cfg.Paused = s, s.paused
	first, _ := LockOwners(h.cfg.Self.NodeID, h.cfg.Self.Incarnation)
	cfg.Owner = first + uint64(s.number)*ownersPerWorker
	if cfg.Scanners = -1; scans {
		cfg.Scanners = workerScanners
	}
	// Each start of the session's scanners gives their actors new names.
	s.starts++
	cfg.Name = fmt.Sprintf("scanner-worker-%d-%d", s.serial, s.starts)
	scanners, err := scanner.Spawn(h.cfg.System, cfg)
	if err != nil {
		return err
	}
	s.scanners.Store(scanners)
	s.scanned = x.targets
	if runs := h.runs.Load(); runs != nil {
		h.survey(runs)
	}
	return nil
}

// scanAll makes the session's scanners look for all changes, not only for hinted ones.
func (h *Host) scanAll(ctx context.Context, s *session) {
	if h.lock(ctx) != nil {
		return
	}
	defer h.unlock()
	if s.scanners.Load() == nil { // register has yet to start them, with this setting
		return
	}
	s.scanned = nil // not equal to any
	if err := h.scanFor(ctx, s, s.settings.Load()); err != nil && ctx.Err() == nil {
		h.cfg.Node.Logger.Warn("the scanners of a worker were not started", "error", err)
	}
}

// endTimeout bounds the wait for the scanners of a session that has ended.
const endTimeout = 5 * time.Second

// endSession releases the cells that the worker had, for others. died reports that the worker did
// not leave in good order.
func (h *Host) endSession(s *session, died bool) {
	listed := h.workers.remove(s, died)
	if died && listed {
		h.NoteCrash() // before others run the worker's cells
	}
	s.end()
	h.workers.wake()
	s.tasks.Wait()
	listed = h.workers.remove(s, died) || listed // register may have listed it meanwhile
	if scanners := s.scanners.Load(); scanners != nil {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		if err := scanners.Stop(ctx); err != nil {
			h.cfg.Node.Logger.Warn("the scanners of a worker have not ended", "error", err)
		}
	}
	if !listed || h.cfg.Life.Err() != nil {
		return
	}
	h.cfg.Node.Logger.Info("a worker is gone", "incarnation", s.hello.GetIncarnation(), "died", died)
	h.workers.relinkSoon()
}

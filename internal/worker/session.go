package worker

import (
	"context"
	"sync"
	"time"

	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// beat is the longest pause between two messages of the worker, which may be empty, and silence
	// the time without a message after which the node counts as unreachable. Nodes use the same
	// values.
	beat    = 200 * time.Millisecond
	silence = 800 * time.Millisecond
	// welcomeTimeout bounds the wait for a node's first settings: the node may have to enter the
	// observers in the catalogue.
	welcomeTimeout = 15 * time.Second
	// figuresPause is the least pause between two messages with the observers' figures, except
	// before the last message.
	figuresPause = time.Second
)

// session is the session with one node. One goroutine receives and handles the node's messages, and
// one sends: it gathers whatever is ready into one message. The dispatcher's callbacks only post.
type session struct {
	w      *worker
	stream *rpc.WorkSession
	node   uint64        // set by the first settings
	closed chan struct{} // closed when the session has ended

	mu      sync.Mutex
	next    *pb.WorkRequest // nil: nothing to send
	last    bool            // the worker leaves after next
	heard   time.Time
	silence time.Duration
	scans   bool
	wake    chan struct{} // capacity 1: next is set
}

// session has one session with the node at the address. served reports whether the node had
// accepted the observers; it is false with errAlias.
func (w *worker) session(addr string) (served bool, err error) {
	ctx, cancel := context.WithCancel(w.life)
	defer cancel()
	opening := time.AfterFunc(welcomeTimeout, cancel)
	stream, err := w.transport.OpenWork(ctx, addr)
	if err != nil {
		return false, err
	}
	s := &session{
		w: w, stream: stream, closed: make(chan struct{}), wake: make(chan struct{}, 1),
		next: &pb.WorkRequest{Hello: w.hello()}, heard: time.Now(), silence: welcomeTimeout,
	}
	s.wake <- struct{}{}
	var sending sync.WaitGroup
	sending.Go(func() {
		s.send(ctx)
		cancel() // receive ends, too
	})
	defer func() {
		cancel()
		sending.Wait()
		_ = stream.Close() // its error only repeats why the stream broke
		close(s.closed)
		w.lost(s)
		if held := w.hold(context.WithoutCancel(ctx)); held != nil {
			w.cfg.Client.Logger.Debug("worker: the queued runs could not be dropped", "error", held)
		}
	}()
	welcome, err := stream.Recv()
	if err != nil {
		return false, err
	}
	opening.Stop()
	s.node = welcome.GetSettings().GetNodeId()
	s.mu.Lock()
	s.heard, s.silence = time.Now(), silence
	s.mu.Unlock()
	if !w.opened(s) {
		return false, errAlias
	}
	for m := welcome; err == nil; m, err = stream.Recv() {
		if failed := s.handle(ctx, m); failed != nil {
			return true, failed
		}
		w.ready.Do(w.cfg.Ready)
	}
	return true, err
}

// hello is the message that registers the observers.
func (w *worker) hello() *pb.WorkHello {
	m := &pb.WorkHello{
		ClusterId: w.transport.Cluster(), Incarnation: w.transport.Incarnation(),
		Credit: uint32(w.cfg.Queue),
	}
	for i, o := range w.observers {
		m.Observers = append(m.Observers, &pb.WorkObserver{
			Info: &pb.ObserverInfo{
				Name: o.Name, TableName: o.Column.Table, Column: []byte(o.Column.Name), Weak: o.Weak,
			},
			Version: uint32(o.Version), DebounceMs: uint64(o.Debounce.Milliseconds()),
			Enough: uint32(w.dispatcher.Enough(i)),
		})
	}
	return m
}

// handle handles a message of the node.
func (s *session) handle(ctx context.Context, m *pb.WorkResponse) error {
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
	if settings := m.GetSettings(); settings != nil {
		if err := s.w.apply(ctx, settings); err != nil {
			return err
		}
		s.post(func(m *pb.WorkRequest) { m.Applied = max(m.Applied, settings.GetNumber()) }, false)
	}
	if o := m.GetOffer(); o != nil {
		if err := s.admit(ctx, o); err != nil {
			return err
		}
	}
	if r := m.GetRefused(); r != nil {
		s.w.dispatcher.Refused(r.GetObserver(), time.Duration(r.GetWaitMs())*time.Millisecond)
	}
	if q := m.GetRun(); q != nil {
		run := s.w.dispatcher.Run(q.GetObserver(), wire.String(q.GetRow()))
		s.post(func(m *pb.WorkRequest) { m.Run = &pb.WorkRun{Id: q.GetId(), Run: run} }, false)
	}
	return nil
}

// admit submits offered cells to the dispatcher, and posts its answer.
func (s *session) admit(ctx context.Context, o *pb.WorkOffer) error {
	items := make([]notify.Dirty, len(o.GetCells()))
	for i, c := range o.GetCells() {
		id := o.GetFirst() + uint64(i)
		items[i] = notify.Dirty{
			Cell: wire.Cell(c.GetCell()), Held: c.GetHeld(), Backlog: c.GetBacklog(),
			Done:  func() { s.post(func(m *pb.WorkRequest) { m.Done = append(m.Done, id) }, false) },
			Waits: func() { s.post(func(m *pb.WorkRequest) { m.Waits = append(m.Waits, id) }, false) },
		}
		if n := c.GetNotify(); n != nil {
			entry := wire.Notify(n)
			items[i].Notify = &entry
			if len(n.GetTrace()) > 0 {
				s.w.traces.Add(&wire.Trace{Ts: n.GetTs(), Context: n.GetTrace()})
			}
		}
	}
	s.w.findTraces(ctx, items)
	answers, err := s.w.dispatcher.Submit(ctx, items)
	if err != nil {
		return err
	}
	out := &pb.WorkAnswer{First: o.GetFirst(), Admissions: make([]byte, len(answers))}
	for i, a := range answers {
		out.Admissions[i] = byte(a)
	}
	s.post(func(m *pb.WorkRequest) { m.Answers = append(m.Answers, out) }, false)
	return nil
}

// post adds to the next message. It does not block. Nothing is sent after the last message.
func (s *session) post(add func(*pb.WorkRequest), last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &pb.WorkRequest{}
	}
	add(s.next)
	s.last = s.last || last
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// scan asks the node to scan all tablets for changes, also those of which no leader hints.
func (s *session) scan() {
	s.mu.Lock()
	s.scans = true
	s.mu.Unlock()
	s.post(func(m *pb.WorkRequest) { m.Scans = true }, false)
}

// refused posts that an external service refuses the observer for d.
func (s *session) refused(name string, d time.Duration) {
	s.post(func(m *pb.WorkRequest) {
		m.Refused = append(m.Refused, &pb.WorkRefusal{
			Observer: name, WaitMs: uint64(d.Milliseconds()),
		})
	}, false)
}

// send sends what was posted until ctx ends, the node is silent, the stream breaks, or the worker
// leaves.
func (s *session) send(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	shown := time.Time{}
	for {
		select {
		case <-s.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		m, last, scans := s.next, s.last, s.scans
		s.next = nil
		silent := time.Since(s.heard) > s.silence
		s.mu.Unlock()
		if silent {
			return
		}
		if m == nil {
			m = &pb.WorkRequest{}
		}
		if scans && (last || time.Since(shown) >= figuresPause) {
			m.Observers, shown = s.w.dispatcher.Status(), time.Now()
		}
		if s.stream.Send(m) != nil { // Recv has the reason
			return
		}
		if last {
			_ = s.stream.Leave()
			<-ctx.Done() // until the node has answered, or leaveTimeout
			return
		}
	}
}

// findTraces finds the traces of hinted changes, if runs are traced.
func (w *worker) findTraces(ctx context.Context, items []notify.Dirty) {
	if w.traces == nil {
		return
	}
	for i := range items {
		if items[i].Notify != nil || !items[i].Held {
			continue
		}
		if err := w.findTrace(ctx, items[i].Cell); err != nil {
			return // the runs begin traces of their own
		}
	}
}

// findTrace reads the trace of the change that set the notification in the cell.
func (w *worker) findTrace(ctx context.Context, c mvcc.Cell) error {
	ctx, cancel := context.WithTimeout(ctx, silence/4)
	defer cancel()
	answer, _, err := w.client.Send(ctx, wire.Position{Table: c.Table, Row: c.Row},
		observer.EntryRequest(c))
	w.traces.Learn(answer.GetWalk().GetEntries())
	return err
}

package hosting

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// session is the session of one worker with this node. It implements scanner.Dispatcher: Submit
// offers cells to the worker and waits for its admissions. Serve's goroutine handles the worker's
// messages, a goroutine of its own writes to the stream; scanners and the hinter call Submit.
//
// cells has each cell that was offered and is not done, with its advisory lock: at most credit of
// them. When the session ends, all of them are released.
type session struct {
	host           *Host
	hello          *pb.WorkHello
	number, serial int
	observers      []observer.Registered // guarded by applying, once the session is listed; without functions
	scanned        []notify.Target       // of scanners; guarded by applying
	starts         int                   // number of starts of scanners; guarded by applying
	may            func(table uint32) error

	settings atomic.Pointer[settings]
	scanners atomic.Pointer[scanner.Scanners]
	scans    atomic.Bool // the worker reports here; the scanners also look for what was not hinted
	leaving  atomic.Bool // the worker leaves and gets no further cells
	status   atomic.Pointer[[]*pb.ObserverStatus]

	out   chan *pb.WorkResponse
	ended chan struct{} // closed when the session ends
	tasks sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	last      uint64                  // id of the last offered cell
	cells     map[uint64]notify.Dirty // offered and not done, by id
	offers    map[uint64]offer        // without an answer, by the id of their first cell
	awaiting  map[uint64]chan struct{}
	questions map[uint64]chan *pb.ObserverRun
	numbers   uint64 // last number of a message: settings and questions are numbered together
}

type offer struct {
	count  int
	answer chan []notify.Admission // capacity 1
}

// settings are what the worker's observers have to honour. They are immutable.
type settings struct {
	message *pb.WorkSettings // without a number
	targets []notify.Target
	held    map[notify.Target]bool // paused or retired
}

func newSession(h *Host, hello *pb.WorkHello, may func(uint32) error) *session {
	s := &session{
		host: h, hello: hello, may: may, out: make(chan *pb.WorkResponse, 16),
		ended: make(chan struct{}), cells: map[uint64]notify.Dirty{}, offers: map[uint64]offer{},
		awaiting: map[uint64]chan struct{}{}, questions: map[uint64]chan *pb.ObserverRun{},
	}
	for _, o := range hello.GetObservers() {
		var r observer.Registered
		r.Spec.Name, r.Spec.Weak = o.GetInfo().GetName(), o.GetInfo().GetWeak()
		r.Spec.Column.Table, r.Spec.Column.Name = o.GetInfo().GetTableName(), string(o.GetInfo().GetColumn())
		r.Spec.Debounce = time.Duration(o.GetDebounceMs()) * time.Millisecond
		s.observers = append(s.observers, r)
	}
	s.settings.Store(&settings{message: &pb.WorkSettings{}})
	return s
}

// maxCredit bounds a worker's credit.
const maxCredit = 1 << 16

// Submit implements scanner.Dispatcher. Cells beyond the worker's credit are answered Full.
func (s *session) Submit(ctx context.Context, items []notify.Dirty) ([]notify.Admission, error) {
	out := make([]notify.Admission, len(items))
	s.mu.Lock()
	if s.closed || s.leaving.Load() {
		s.mu.Unlock()
		return filled(out, notify.Stopped), nil
	}
	room := max(int(min(s.hello.GetCredit(), maxCredit))-len(s.cells), 0)
	sent := items[:min(room, len(items))]
	filled(out[len(sent):], notify.Full)
	first := s.last + 1
	s.last += uint64(len(sent))
	for i := range sent {
		s.cells[first+uint64(i)] = sent[i]
	}
	answer := make(chan []notify.Admission, 1)
	s.offers[first] = offer{len(sent), answer}
	s.mu.Unlock()
	if len(sent) == 0 {
		return out, nil
	}
	select {
	case s.out <- &pb.WorkResponse{Offer: s.offer(first, sent)}:
	case <-s.ended:
		return filled(out, notify.Stopped), nil
	case <-ctx.Done():
		s.answered(&pb.WorkAnswer{First: first}) // the offer was not sent
		return filled(out, notify.Full), nil
	}
	select {
	case got := <-answer:
		copy(out, got)
		return out, nil
	case <-s.ended:
		return filled(out, notify.Stopped), nil
	case <-ctx.Done():
		return nil, ctx.Err() // some cells may be accepted; their Done will be called
	}
}

func filled(out []notify.Admission, with notify.Admission) []notify.Admission {
	for i := range out {
		out[i] = with
	}
	return out
}

// offer returns the message that offers the cells.
func (s *session) offer(first uint64, items []notify.Dirty) *pb.WorkOffer {
	m := &pb.WorkOffer{First: first, Cells: make([]*pb.WorkCell, len(items))}
	for i, d := range items {
		c := &pb.WorkCell{
			Cell: wire.CellPB(d.Cell), Notify: wire.NotifyPB(d.Notify), Held: d.Held, Backlog: d.Backlog,
		}
		if d.Notify != nil {
			if trace, ok := s.host.cfg.Traces.Of(d.Notify.TS); ok {
				c.Notify.Trace = append([]byte(nil), trace[:]...)
			}
		}
		m.Cells[i] = c
	}
	return m
}

// take handles a message of the worker. It does not block.
func (s *session) take(m *pb.WorkRequest) {
	for _, a := range m.GetAnswers() {
		s.answered(a)
	}
	s.finished(m.GetWaits(), false)
	s.finished(m.GetDone(), true)
	s.mu.Lock()
	for number, applied := range s.awaiting {
		if number <= m.GetApplied() {
			close(applied)
			delete(s.awaiting, number)
		}
	}
	if asked, ok := s.questions[m.GetRun().GetId()]; ok {
		asked <- m.GetRun().GetRun() // capacity 1, and answered once
		delete(s.questions, m.GetRun().GetId())
	}
	s.mu.Unlock()
	if m.GetLeaves() {
		s.leaving.Store(true)
	}
	if own := m.GetObservers(); len(own) > 0 {
		own = slices.DeleteFunc(own, func(o *pb.ObserverStatus) bool { return !s.runs(o.GetName()) })
		s.host.workers.count(s.status.Swap(&own), own)
	}
	for _, r := range m.GetRefused() {
		if wait := min(r.GetWaitMs(), uint64(time.Hour.Milliseconds())); s.runs(r.GetObserver()) {
			s.host.heardFromWorker(s, r.GetObserver(), time.Duration(wait)*time.Millisecond)
		}
	}
}

// runs reports whether the worker has registered the observer.
func (s *session) runs(name string) bool {
	return slices.ContainsFunc(s.hello.GetObservers(), func(o *pb.WorkObserver) bool {
		return o.GetInfo().GetName() == name
	})
}

// answered passes on the worker's answer to an offer. Cells that the worker has not accepted are
// the finder's again; a cell without an admission counts as Full.
func (s *session) answered(a *pb.WorkAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.offers[a.GetFirst()]
	if !ok {
		return
	}
	delete(s.offers, a.GetFirst())
	out := filled(make([]notify.Admission, o.count), notify.Full)
	for i, admission := range a.GetAdmissions()[:min(len(a.GetAdmissions()), o.count)] {
		out[i] = notify.Admission(admission)
	}
	for i, admission := range out {
		if admission != notify.Accepted {
			delete(s.cells, a.GetFirst()+uint64(i))
		}
	}
	o.answer <- out
}

// finished releases the cells if they are done; otherwise they wait, and it releases only the slots
// that they occupy in the scanners that found them.
func (s *session) finished(ids []uint64, done bool) {
	for _, id := range ids {
		s.mu.Lock()
		d := s.cells[id]
		if done {
			delete(s.cells, id)
		}
		s.mu.Unlock()
		switch {
		case done && d.Done != nil:
			d.Done()
		case !done && d.Waits != nil:
			d.Waits()
		}
	}
}

// end ends the session: it releases all cells, with their advisory locks, so that others may take
// them at once.
func (s *session) end() {
	s.mu.Lock()
	cells := s.cells
	s.closed, s.cells = true, nil
	close(s.ended)
	s.mu.Unlock()
	for _, d := range cells {
		if d.Done != nil {
			d.Done()
		}
	}
}

// paused reports whether the column's observer is paused or retired.
func (s *session) paused(t notify.Target) bool { return s.settings.Load().held[t.Key()] }

// figures returns the worker's last figures, if it reports to this node.
func (s *session) figures() []*pb.ObserverStatus {
	if last := s.status.Load(); last != nil && s.scans.Load() {
		return *last
	}
	return nil
}

// tell sends a message without waiting; if the worker does not read, the message is sent later.
func (s *session) tell(m *pb.WorkResponse) {
	select {
	case s.out <- m:
		return
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.tasks.Go(func() {
		select {
		case s.out <- m:
		case <-s.ended:
		}
	})
}

// numbered returns the next number of a message, and calls note with it under mu.
func (s *session) numbered(note func(number uint64)) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers++
	note(s.numbers)
	return s.numbers
}

// applied sends settings and waits until the worker honours them, the session ends, or ctx ends.
func (s *session) applied(ctx context.Context, x *settings) error {
	done := make(chan struct{})
	number := s.numbered(func(n uint64) { s.awaiting[n] = done })
	defer func() {
		s.mu.Lock()
		delete(s.awaiting, number)
		s.mu.Unlock()
	}()
	m := s.host.withSuspect(x.message)
	m.Number = number
	select {
	case s.out <- &pb.WorkResponse{Settings: m}:
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-s.ended: // the worker notices too, and starts no run of the session's cells
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runTimeout bounds the wait for a worker's answer about its last run.
const runTimeout = 300 * time.Millisecond

// lastRun asks a worker that reports to this node for the last run of its observer for a row; nil
// if it does not remember or answer.
func (s *session) lastRun(ctx context.Context, name, row string) *pb.ObserverRun {
	if !s.scans.Load() || !s.runs(name) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	answer := make(chan *pb.ObserverRun, 1)
	id := s.numbered(func(n uint64) { s.questions[n] = answer })
	defer func() {
		s.mu.Lock()
		delete(s.questions, id)
		s.mu.Unlock()
	}()
	s.tell(&pb.WorkResponse{Run: &pb.WorkRun{Id: id, Observer: name, Row: wire.Bytes(row)}})
	select {
	case run := <-answer:
		return run
	case <-s.ended:
	case <-ctx.Done():
	}
	return nil
}

// heardFromWorker passes on that an external service refuses an observer of the worker.
func (h *Host) heardFromWorker(s *session, name string, d time.Duration) {
	h.workers.refused(s, name, d)
	if x := h.runs.Load(); x != nil {
		x.dispatcher.Refused(name, d)
	}
	h.tellNodesRefused(name, d)
}

// withSuspect returns a copy of the settings with the crash horizon: the process that ran a change up
// to this timestamp may have died of it.
func (h *Host) withSuspect(m *pb.WorkSettings) *pb.WorkSettings {
	out := &pb.WorkSettings{
		Version: m.GetVersion(), Observers: m.GetObservers(), Versions: h.cfg.Versions(),
		NodeId: h.cfg.Self.NodeID,
	}
	if x := h.runs.Load(); x != nil {
		out.SuspectTs = uint64(x.crashes.get())
	}
	return out
}

// targetsOf returns what the session's scanners look for, the columns whose observers are paused or
// retired, and the observers' entries. It links the session's observers to those entries.
func (s *session) targetsOf(c *pb.Catalogue) (out []notify.Target, held map[notify.Target]bool,
	infos []*pb.ObserverInfo) {
	held = map[notify.Target]bool{}
	for i := range s.observers {
		o := &s.observers[i]
		info := entryOf(c, o)
		switch {
		case info != nil:
			o.Link = observer.Link{Table: mvcc.TableID(info.GetTable()), Own: info.GetOwnEntry()}
		case o.Table != 0: // the observer was retired, and its entry was removed
			info = infoOf(o.Spec, o.Table)
			info.Retired = true
		default:
			continue
		}
		infos = append(infos, info)
		t, _ := o.Target()
		t.Weak, t.Debounce = o.Spec.Weak, o.Spec.Debounce
		t.Enough = int(min(s.hello.GetObservers()[i].GetEnough(), maxCredit))
		held[t.Key()] = info.GetPaused() || info.GetRetired()
		if !info.GetRetired() {
			out = append(out, t)
		}
	}
	return out, held, infos
}

package evaluate

import (
	"iter"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// pending counts the pending work of each observer of the catalogue, and sums up what WaitIdle
// waits for: the notifications and intents of observers that a process runs and that are neither
// paused nor retired, and the locks on observed columns. A request with effects set gets only
// the unfinished effects.
func pending(v View, req *pb.PendingRequest) (*pb.TabletResponse, error) {
	if req.GetEffects() != nil {
		return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{
			Pending: &pb.PendingResponse{Effects: effects(v, req)},
		}}, nil
	}
	out := &pb.PendingResponse{NotifyWritten: v.Notified()}
	var tables []mvcc.TableID // of observed columns
	for _, o := range v.Observers() {
		if table := mvcc.TableID(o.Table); !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
		p, err := v.Waiting(o)
		if err != nil {
			return nil, err
		}
		out.Observers = append(out.Observers, p)
		out.Parked += p.Parked
		switch {
		case o.Retired || o.Paused || slices.Contains(req.GetUnlinked(), o.Name):
			out.Unlinked += p.Notifications + p.Intents
		default:
			out.Notifications += p.Notifications
			out.Intents += p.Intents
		}
	}
	for _, table := range tables {
		span, ok := wire.Clip(v.Descriptor(), mvcc.Span{Table: table})
		if !ok {
			continue
		}
		for c := range v.Locks(span, false) {
			if v.Observed(c.Table, c.Column).How != mvcc.NotObserved {
				out.Locks++
			}
		}
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: out}}, nil
}

// walk returns a page of the notify, lock or intent group, for scanners and tools (§2.4).
func walk(v View, req *pb.WalkRequest) (*pb.TabletResponse, error) {
	limit := int(req.Limit)
	if limit <= 0 || limit > maxWalkEntries {
		limit = maxWalkEntries
	}
	span, ok := wire.Clip(v.Descriptor(),
		mvcc.Span{Table: mvcc.TableID(req.Table), Start: wire.String(req.FromRow)})
	if !ok {
		return elsewhere(v), nil
	}
	w := walking{View: v, req: req, span: span, limit: limit, out: &pb.WalkResponse{Done: true}}
	var err error
	switch mvcc.Group(req.Group) {
	case mvcc.GroupLock:
		w.locked()
	case mvcc.GroupNotify:
		switch {
		case len(req.Columns) > 0:
			err = w.probe()
		case len(req.Rows) > 0:
			err = w.lookUp()
		default:
			err = w.notified()
		}
	case mvcc.GroupIntent:
		err = w.intended()
	default:
		return wire.Failure(pb.Error_CODE_INVALID, "group %q cannot be walked: N, L or I",
			rune(req.Group)), nil
	}
	if err != nil {
		return nil, err
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Walk{Walk: w.out}}, nil
}

// walking is the state of a walk.
type walking struct {
	View
	req   *pb.WalkRequest
	span  mvcc.Span
	limit int
	out   *pb.WalkResponse
}

// full reports whether the page is full, and records that in the answer.
func (w *walking) full() bool {
	if len(w.out.Entries) < w.limit {
		return false
	}
	w.out.Done = false
	return true
}

func (w *walking) locked() {
	span := w.span
	after := wire.Cell(w.req.After)
	if w.req.After != nil && after.Row > span.Start {
		span.Start = after.Row
	}
	for c, l := range w.Locks(span, false) {
		if l.Token != 0 || (w.req.After != nil && after.Compare(c) >= 0) {
			continue
		}
		if w.full() {
			return
		}
		l.Value, l.Secondaries = nil, nil
		p := wire.LockPB(l)
		w.out.Entries = append(w.out.Entries, &pb.WalkEntry{Cell: wire.CellPB(c), Lock: p})
	}
}

// probe finds the requested columns that have an entry.
func (w *walking) probe() error {
	w.out.Probed = true
	for _, c := range w.req.Columns {
		one := walking{View: w.View, span: w.span, limit: 1, out: &pb.WalkResponse{}, req: &pb.WalkRequest{
			Table: w.req.Table, Class: c.GetClass(), Column: c.GetColumn(), Oldest: w.req.Oldest,
		}}
		if err := one.notified(); err != nil {
			return err
		}
		if len(one.out.Entries) > 0 {
			w.out.Dirty = append(w.out.Dirty, c)
		}
	}
	return nil
}

// lookUp finds the entries of the requested rows, as far as they are in the tablet and in the page.
func (w *walking) lookUp() error {
	for _, r := range w.req.Rows {
		row := wire.String(r)
		if !w.span.Contains(row) || w.full() {
			return nil
		}
		w.out.Rows++
		for n, err := range w.Notifies(wire.WalkedColumn(w.req), row, false) {
			if err != nil {
				return err
			}
			if n.Cell.Row == row {
				w.out.Entries = append(w.out.Entries,
					&pb.WalkEntry{Cell: wire.CellPB(n.Cell), Notify: wire.NotifyPB(&n.Notify)})
			}
			break
		}
	}
	return nil
}

func (w *walking) notified() error {
	if w.req.Oldest {
		if queue, ok := w.Queue(wire.WalkedColumn(w.req), w.req.AfterPlace); ok {
			w.queued(queue)
			return nil
		}
	}
	from, past := w.span.Start, false
	if w.req.After != nil && wire.String(w.req.After.Row) >= from {
		from, past = wire.String(w.req.After.Row), true
	}
	for n, err := range w.Notifies(wire.WalkedColumn(w.req), from, past) {
		if err != nil {
			return err
		}
		if !w.span.Contains(n.Cell.Row) || w.full() {
			return nil
		}
		w.out.Entries = append(w.out.Entries,
			&pb.WalkEntry{Cell: wire.CellPB(n.Cell), Notify: wire.NotifyPB(&n.Notify)})
	}
	return nil
}

// queued adds notifications in queue order.
func (w *walking) queued(queue iter.Seq[Queued]) {
	w.out.Ordered, w.out.Place = true, w.req.AfterPlace
	for q := range queue {
		if !w.span.Contains(q.Notify.Cell.Row) {
			continue
		}
		if w.full() {
			return
		}
		w.out.Place = q.Place
		w.out.Entries = append(w.out.Entries,
			&pb.WalkEntry{
				Cell: wire.CellPB(q.Notify.Cell), Notify: wire.NotifyPB(&q.Notify.Notify),
			})
	}
}

func (w *walking) intended() error {
	from := w.span.Start
	if w.req.After != nil && wire.String(w.req.After.Row) > from {
		from = wire.String(w.req.After.Row)
	}
	for i, err := range w.Intents(w.span.Table, wire.String(w.req.Column), from) {
		if err != nil {
			return err
		}
		if !w.span.Contains(i.Cell.Row) {
			return nil
		}
		if w.req.After != nil && i.Cell.Row == wire.String(w.req.After.Row) &&
			uint64(i.StartTS) <= w.req.AfterTs {
			continue
		}
		if w.full() {
			return nil
		}
		w.out.Entries = append(w.out.Entries,
			&pb.WalkEntry{
				Cell: wire.CellPB(i.Cell), Ts: uint64(i.StartTS), Intent: wire.IntentPB(&i.Intent),
			})
	}
	return nil
}

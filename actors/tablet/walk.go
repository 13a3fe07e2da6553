package tablet

import (
	"iter"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

const maxWalkEntries = 1024

// answerWalk gives a page of the notify, lock or intent group: what scanners and tools
// look through (§2.4).
func answerWalk(v *readView, req *pb.WalkRequest) (*pb.TabletResponse, error) {
	limit := int(req.Limit)
	if limit <= 0 || limit > maxWalkEntries {
		limit = maxWalkEntries
	}
	span, ok := wire.Clip(v.descriptor, mvcc.Span{Table: mvcc.TableID(req.Table), Start: wire.String(req.FromRow)})
	if !ok {
		return v.elsewhere(), nil
	}
	w := walk{readView: v, req: req, span: span, limit: limit, out: &pb.WalkResponse{Done: true}}
	var err error
	switch mvcc.Group(req.Group) {
	case mvcc.GroupLock:
		w.locked()
	case mvcc.GroupNotify:
		err = w.notified()
	case mvcc.GroupIntent:
		err = w.intended()
	default:
		return failure(pb.Error_CODE_INVALID, "group %q cannot be walked: N, L or I", rune(req.Group)), nil
	}
	if err != nil {
		return nil, err
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Walk{Walk: w.out}}, nil
}

type walk struct {
	*readView
	req   *pb.WalkRequest
	span  mvcc.Span
	limit int
	out   *pb.WalkResponse
}

// full reports, and marks, that the page has no room.
func (w *walk) full() bool {
	if len(w.out.Entries) < w.limit {
		return false
	}
	w.out.Done = false
	return true
}

func (w *walk) locked() {
	span := w.span
	after := wire.Cell(w.req.After)
	if w.req.After != nil && after.Row > span.Start {
		span.Start = after.Row
	}
	for c, l := range w.locks.all(span, false) {
		if l.Token != 0 || (w.req.After != nil && !lessCell(after, c)) {
			continue
		}
		if w.full() {
			return
		}
		p := wire.LockPB(l)
		p.Value = nil
		w.out.Entries = append(w.out.Entries, &pb.WalkEntry{Cell: wire.CellPB(c), Lock: p})
	}
}

func (w *walk) notified() error {
	if w.req.Oldest {
		if queue, ok := w.Queue(w.span.Table, wire.String(w.req.Column), w.req.AfterPlace); ok {
			w.queued(queue)
			return nil
		}
	}
	from, past := w.span.Start, false
	if w.req.After != nil && wire.String(w.req.After.Row) >= from {
		from, past = wire.String(w.req.After.Row), true
	}
	for n, err := range w.Notifies(w.span.Table, wire.String(w.req.Column), from, past) {
		if err != nil {
			return err
		}
		if !w.span.Contains(n.Cell.Row) || w.full() {
			return nil
		}
		w.out.Entries = append(w.out.Entries, &pb.WalkEntry{Cell: wire.CellPB(n.Cell), Notify: wire.NotifyPB(&n.Notify)})
	}
	return nil
}

// queued answers in the order in which notifications wait.
func (w *walk) queued(queue iter.Seq[queuedNotify]) {
	w.out.Ordered, w.out.Place = true, w.req.AfterPlace
	for q := range queue {
		if !w.span.Contains(q.notify.Cell.Row) {
			continue
		}
		if w.full() {
			return
		}
		w.out.Place = q.place
		w.out.Entries = append(w.out.Entries, &pb.WalkEntry{Cell: wire.CellPB(q.notify.Cell), Notify: wire.NotifyPB(&q.notify.Notify)})
	}
}

func (w *walk) intended() error {
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
		if w.req.After != nil && i.Cell.Row == wire.String(w.req.After.Row) && uint64(i.StartTS) <= w.req.AfterTs {
			continue
		}
		if w.full() {
			return nil
		}
		w.out.Entries = append(w.out.Entries, &pb.WalkEntry{Cell: wire.CellPB(i.Cell), Ts: uint64(i.StartTS), Intent: wire.IntentPB(&i.Intent)})
	}
	return nil
}

// columnsOf lists the observed columns of a table.
func (c *catalogue) columnsOf(t mvcc.TableID) []string {
	var out []string
	for k := range c.columns {
		if k.table == t {
			out = append(out, k.column)
		}
	}
	return out
}

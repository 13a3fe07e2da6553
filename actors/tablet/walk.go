package tablet

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

const maxWalkEntries = 1024

// answerWalk gives a page of the notify, lock or intent group: what scanners and tools look through (§2.4).
func answerWalk(v readView, req *pb.WalkRequest) (*pb.TabletResponse, error) {
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
	readView
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

// answerPending counts what WaitIdle waits for, and apart from it what nobody can run.
func answerPending(v readView, req *pb.PendingRequest) (*pb.TabletResponse, error) {
	out := &pb.PendingResponse{NotifyWritten: v.notifies}
	for key := range v.catalogue.columns {
		notifications, parked, intents, err := v.pending(key)
		if err != nil {
			return nil, err
		}
		out.Parked += parked
		if slices.Contains(req.GetUnlinked(), v.catalogue.names[key]) {
			out.Unlinked += notifications + intents
			continue
		}
		out.Notifications += notifications
		out.Intents += intents
	}
	v.locks.tree.Scan(func(e lockEntry) bool {
		if v.catalogue.observed(e.cell.Table, e.cell.Column) != mvcc.NotObserved {
			out.Locks++
		}
		return true
	})
	return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: out}}, nil
}

// maxPending bounds how many entries of one column are counted: who waits for none needs no exact number of many.
const maxPending = 2048

// pending counts the entries of one observed column, those to be waited for up to maxPending.
func (v readView) pending(key columnKey) (notifications, parked, intents uint64, err error) {
	span, ok := wire.Clip(v.descriptor, mvcc.Span{Table: key.table})
	if !ok {
		return 0, 0, 0, nil
	}
	for n, err := range v.Notifies(key.table, key.column, span.Start, false) {
		if err != nil {
			return 0, 0, 0, err
		}
		if !span.Contains(n.Cell.Row) || notifications >= maxPending {
			break
		}
		if n.Notify.ParkedTS != 0 {
			parked++
		} else {
			notifications++
		}
	}
	for i, err := range v.Intents(key.table, key.column, span.Start) {
		if err != nil {
			return 0, 0, 0, err
		}
		if !span.Contains(i.Cell.Row) || intents >= maxPending {
			break
		}
		intents++
	}
	return notifications, parked, intents, nil
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

package notifytest

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// serve evaluates one operation and applies its effects at once.
func (c *Cluster) serve(d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	c.mu.Lock()
	now := c.current(d)
	if now == nil || now.Epoch != d.GetEpoch() {
		defer c.mu.Unlock()
		return &pb.TabletResponse{Error: &pb.Error{
			Code: pb.Error_CODE_WRONG_TABLET, Message: "split", Descriptors: append([]*pb.TabletDescriptor(nil), c.tablets...),
		}}, nil
	}
	resp, list, err := c.evaluate(now, req)
	hints := c.applyLocked(list)
	c.mu.Unlock()
	c.hint(hints)
	return resp, err
}

func (c *Cluster) current(d *pb.TabletDescriptor) *pb.TabletDescriptor {
	for _, t := range c.tablets {
		if t.TabletId == d.GetTabletId() {
			return t
		}
	}
	return nil
}

// evaluate calls the rule of the operation. The caller holds mu.
func (c *Cluster) evaluate(d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, []mvcc.Mutation, error) {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		resp, err := c.get(op.Get)
		return resp, nil, err
	case *pb.TabletRequest_Scan:
		resp, err := c.scan(d, op.Scan)
		return resp, nil, err
	case *pb.TabletRequest_Walk:
		return &pb.TabletResponse{Result: &pb.TabletResponse_Walk{Walk: c.walk(d, op.Walk)}}, nil, nil
	case *pb.TabletRequest_Pending:
		return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: c.pending(d)}}, nil, nil
	}
	result, list, err := c.mutate(req)
	if err != nil {
		return nil, nil, err
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: wire.ResultPB(result)}}, list, nil
}

func (c *Cluster) mutate(req *pb.TabletRequest) (mvcc.Result, []mvcc.Mutation, error) {
	v := c.view
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Prewrite:
		return mvcc.Prewrite(v, wire.Prewrite(op.Prewrite), c.limits)
	case *pb.TabletRequest_Commit:
		return mvcc.Commit(v, wire.Commit(op.Commit))
	case *pb.TabletRequest_OnePhase:
		r := wire.OnePhase(op.OnePhase)
		if res, err := mvcc.CheckOnePhase(v, r); err != nil || res.Status != mvcc.StatusOK {
			return res, nil, err
		}
		return mvcc.OnePhaseCommit(v, r, c.next(1), c.limits)
	case *pb.TabletRequest_Rollback:
		return mvcc.Rollback(v, wire.Rollback(op.Rollback))
	case *pb.TabletRequest_CheckTxnStatus:
		return mvcc.CheckTxnStatus(v, wire.CheckTxnStatus(op.CheckTxnStatus))
	case *pb.TabletRequest_ResolveLock:
		return mvcc.ResolveLock(v, wire.ResolveLock(op.ResolveLock))
	case *pb.TabletRequest_Heartbeat:
		return mvcc.Heartbeat(v, wire.Heartbeat(op.Heartbeat))
	case *pb.TabletRequest_Notify:
		return mvcc.NotifyCells(v, wire.NotifyCells(op.Notify))
	case *pb.TabletRequest_ClearNotify:
		return mvcc.ClearNotify(v, wire.ClearNotify(op.ClearNotify))
	case *pb.TabletRequest_FailNotify:
		return mvcc.FailNotify(v, wire.FailNotify(op.FailNotify))
	}
	return mvcc.Result{Status: mvcc.StatusUnknown}, nil, nil
}

func (c *Cluster) get(r *pb.GetRequest) (*pb.TabletResponse, error) {
	out := &pb.GetResponse{}
	for _, cell := range r.Cells {
		got, err := mvcc.Get(c.view, wire.Cell(cell), mvcc.Timestamp(r.At))
		if err != nil {
			return nil, err
		}
		out.Results = append(out.Results, wire.ReadResultPB(got))
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Get{Get: out}}, nil
}

func (c *Cluster) scan(d *pb.TabletDescriptor, r *pb.ScanRequest) (*pb.TabletResponse, error) {
	req := wire.Scan(r)
	req.Span, _ = wire.Clip(d, req.Span)
	got, err := mvcc.Scan(c.view, req)
	if err != nil {
		return nil, err
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Scan{Scan: wire.ScanResultPB(got)}}, nil
}

// walk gives a page of the notify, lock or intent group.
func (c *Cluster) walk(d *pb.TabletDescriptor, r *pb.WalkRequest) *pb.WalkResponse {
	out := &pb.WalkResponse{Done: true}
	span, ok := wire.Clip(d, mvcc.Span{Table: mvcc.TableID(r.Table), Start: wire.String(r.FromRow)})
	if !ok {
		return out
	}
	add := func(e *pb.WalkEntry) bool {
		out.Done = len(out.Entries) < int(r.Limit)
		if out.Done {
			out.Entries = append(out.Entries, e)
		}
		return out.Done
	}
	after := wire.Cell(r.After)
	switch mvcc.Group(r.Group) {
	case mvcc.GroupNotify:
		for cell, n := range c.dirty.from(span.Table, wire.String(r.Column), span) {
			if r.After != nil && cell.Row <= after.Row {
				continue
			}
			if !add(&pb.WalkEntry{Cell: wire.CellPB(cell), Notify: wire.NotifyPB(&n)}) {
				break
			}
		}
	case mvcc.GroupLock:
		for cell, l := range c.view.Locks(span, false) {
			if r.After != nil && cell.Compare(after) <= 0 {
				continue
			}
			if !add(&pb.WalkEntry{Cell: wire.CellPB(cell), Lock: wire.LockPB(l)}) {
				break
			}
		}
	case mvcc.GroupIntent:
		c.walkIntents(r, span, add)
	}
	return out
}

func (c *Cluster) walkIntents(r *pb.WalkRequest, span mvcc.Span, add func(*pb.WalkEntry) bool) {
	for cell, of := range c.intents.from(span.Table, wire.String(r.Column), span) {
		var starts []mvcc.Timestamp
		for ts := range of {
			if r.After != nil && (cell.Row < string(r.After.Row) || (cell.Row == string(r.After.Row) && uint64(ts) <= r.AfterTs)) {
				continue
			}
			starts = append(starts, ts)
		}
		slices.Sort(starts)
		for _, ts := range starts {
			in := of[ts]
			if !add(&pb.WalkEntry{Cell: wire.CellPB(cell), Ts: uint64(ts), Intent: wire.IntentPB(&in)}) {
				return
			}
		}
	}
}

// pending counts what WaitIdle waits for.
func (c *Cluster) pending(d *pb.TabletDescriptor) *pb.PendingResponse {
	out := &pb.PendingResponse{NotifyWritten: c.written}
	for cell, n := range c.dirty.cells {
		switch {
		case !wire.Holds(d, wire.Position{Table: cell.Table, Row: cell.Row}):
		case n.ParkedTS != 0:
			out.Parked++
		default:
			out.Notifications++
		}
	}
	for cell, of := range c.intents.cells {
		if wire.Holds(d, wire.Position{Table: cell.Table, Row: cell.Row}) {
			out.Intents += uint64(len(of))
		}
	}
	for _, t := range c.tables {
		span, ok := wire.Clip(d, mvcc.Span{Table: mvcc.TableID(t.Id)})
		if !ok {
			continue
		}
		for cell := range c.view.Locks(span, false) {
			if c.view.Observed(cell.Table, cell.Column) != mvcc.NotObserved {
				out.Locks++
			}
		}
	}
	return out
}

package txntest

import (
	"errors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// evaluate does one operation and applies its effects.
func (c *Cluster) evaluate(req *pb.TabletRequest) *pb.TabletResponse {
	c.mu.Lock()
	resp, effects := c.serve(req)
	after := c.apply(effects)
	c.mu.Unlock()
	after()
	return resp
}

// serve evaluates one operation. The caller holds mu.
func (c *Cluster) serve(req *pb.TabletRequest) (*pb.TabletResponse, []mvcc.Mutation) {
	if e := c.route(req); e != nil {
		return &pb.TabletResponse{Error: e}, nil
	}
	c.ops++
	if c.extension != nil {
		if resp := c.extension.Serve(c.view, c.tablet(req.TabletId), req); resp != nil {
			return resp, nil
		}
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		return c.get(op.Get), nil
	case *pb.TabletRequest_Scan:
		if mvcc.Timestamp(op.Scan.At) > c.last {
			return refuse(pb.Error_CODE_FUTURE, "read in the future"), nil
		}
		res, err := mvcc.Scan(c.view, wire.Scan(op.Scan))
		if err != nil {
			return failure(err), nil
		}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Scan{Scan: wire.ScanResultPB(res)}}, nil
	case *pb.TabletRequest_Pending:
		return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: c.pending(c.tablet(req.TabletId))}}, nil
	}
	res, effects, err := c.mutate(req)
	if err != nil {
		return failure(err), nil
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: wire.ResultPB(res)}}, effects
}

func (c *Cluster) get(r *pb.GetRequest) *pb.TabletResponse {
	if mvcc.Timestamp(r.At) > c.last {
		return refuse(pb.Error_CODE_FUTURE, "read in the future")
	}
	out, at := &pb.GetResponse{}, mvcc.Timestamp(r.At)
	if at == 0 { // a first read: the tablet takes the timestamp
		at = c.next(1)
		out.At = uint64(at)
	}
	for _, cell := range r.Cells {
		res, err := mvcc.Get(c.view, wire.Cell(cell), at)
		if err != nil {
			return failure(err)
		}
		out.Results = append(out.Results, wire.ReadResultPB(res))
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Get{Get: out}}
}

func (c *Cluster) mutate(req *pb.TabletRequest) (mvcc.Result, []mvcc.Mutation, error) {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Prewrite:
		return mvcc.Prewrite(c.view, wire.Prewrite(op.Prewrite), c.limits)
	case *pb.TabletRequest_Commit:
		return mvcc.Commit(c.view, wire.Commit(op.Commit))
	case *pb.TabletRequest_OnePhase:
		one := wire.OnePhase(op.OnePhase)
		res, err := mvcc.CheckOnePhase(c.view, one)
		if err != nil || res.Status != mvcc.StatusOK {
			return res, nil, err
		}
		return mvcc.OnePhaseCommit(c.view, one, c.next(1), c.limits)
	case *pb.TabletRequest_Rollback:
		return mvcc.Rollback(c.view, wire.Rollback(op.Rollback))
	case *pb.TabletRequest_CheckTxnStatus:
		return mvcc.CheckTxnStatus(c.view, wire.CheckTxnStatus(op.CheckTxnStatus))
	case *pb.TabletRequest_ResolveLock:
		return mvcc.ResolveLock(c.view, wire.ResolveLock(op.ResolveLock))
	case *pb.TabletRequest_Heartbeat:
		return mvcc.Heartbeat(c.view, wire.Heartbeat(op.Heartbeat))
	case *pb.TabletRequest_Notify:
		return mvcc.NotifyCells(c.view, wire.NotifyCells(op.Notify))
	case *pb.TabletRequest_ClearNotify:
		return mvcc.ClearNotify(c.view, wire.ClearNotify(op.ClearNotify))
	case *pb.TabletRequest_FailNotify:
		return mvcc.FailNotify(c.view, wire.FailNotify(op.FailNotify))
	default:
		return mvcc.Result{}, nil, errors.New("txntest: operation not known")
	}
}

// pending counts what one tablet has for WaitIdle: locks here, as there are no observers.
func (c *Cluster) pending(d *pb.TabletDescriptor) *pb.PendingResponse {
	n := uint64(0)
	for _, t := range c.tables {
		span, ok := wire.Clip(d, mvcc.Span{Table: mvcc.TableID(t.Id)})
		if !ok {
			continue
		}
		for range c.view.Locks(span, false) {
			n++
		}
	}
	return &pb.PendingResponse{Locks: n}
}

func (c *Cluster) tablet(id uint64) *pb.TabletDescriptor {
	for _, d := range c.tablets {
		if d.TabletId == id {
			return d
		}
	}
	return nil
}

// route checks epoch and range as a tablet does.
func (c *Cluster) route(req *pb.TabletRequest) *pb.Error {
	d := c.tablet(req.TabletId)
	wrong := d == nil || (req.Epoch != 0 && req.Epoch != d.Epoch)
	cells := cellsOf(req)
	for _, cell := range cells {
		wrong = wrong || !wire.Holds(d, wire.Position{Table: mvcc.TableID(cell.Table), Row: string(cell.Row)})
	}
	if scan := req.GetScan(); scan != nil && !wrong {
		clip, ok := wire.Clip(d, wire.Span(scan.Span))
		wrong = !ok || clip != wire.Span(scan.Span)
	}
	if !wrong {
		return nil
	}
	e := &pb.Error{Code: pb.Error_CODE_WRONG_TABLET, Message: "not here"}
	for _, cell := range cells {
		at := c.find(wire.Position{Table: mvcc.TableID(cell.Table), Row: string(cell.Row)})
		e.Descriptors = append(e.Descriptors, c.tablets[at])
	}
	if d != nil {
		e.Descriptors = append(e.Descriptors, d)
	}
	return e
}

// cellsOf is every cell that the operation must find in its tablet.
func cellsOf(req *pb.TabletRequest) []*pb.Cell {
	var cells []*pb.Cell
	writes := func(list []*pb.CellWrite) {
		for _, w := range list {
			cells = append(cells, w.Cell)
		}
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		cells = append(cells, op.Get.Cells...)
	case *pb.TabletRequest_Prewrite:
		writes(op.Prewrite.Writes)
		cells = append(cells, op.Prewrite.Intents...)
	case *pb.TabletRequest_Commit:
		cells = append(append(cells, op.Commit.Cells...), op.Commit.Intents...)
	case *pb.TabletRequest_OnePhase:
		writes(op.OnePhase.Writes)
		cells = append(cells, op.OnePhase.Notifies...)
	case *pb.TabletRequest_Rollback:
		cells = append(append(cells, op.Rollback.Cells...), op.Rollback.Intents...)
	case *pb.TabletRequest_CheckTxnStatus:
		cells = append(cells, op.CheckTxnStatus.Primary)
	case *pb.TabletRequest_ResolveLock:
		cells = append(append(cells, op.ResolveLock.Cells...), op.ResolveLock.Intents...)
	case *pb.TabletRequest_Heartbeat:
		cells = append(cells, op.Heartbeat.Primary)
	case *pb.TabletRequest_Notify:
		cells = append(cells, op.Notify.Cells...)
	}
	return cells
}

func refuse(code pb.Error_Code, message string) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: message}}
}

func failure(err error) *pb.TabletResponse {
	var limit *mvcc.LimitError
	switch {
	case errors.As(err, &limit):
		return refuse(pb.Error_CODE_TOO_LARGE, err.Error())
	case errors.Is(err, mvcc.ErrInvalid):
		return refuse(pb.Error_CODE_INVALID, err.Error())
	default:
		return refuse(pb.Error_CODE_INTERNAL, err.Error())
	}
}

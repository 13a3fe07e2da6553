package txntest

import (
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/evaluate/evaluatetest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// evaluate evaluates one operation and applies its effects.
func (c *Cluster) evaluate(req *pb.TabletRequest) *pb.TabletResponse {
	c.mu.Lock()
	resp, effects := c.serve(req)
	after := c.apply(effects)
	c.mu.Unlock()
	after()
	return resp
}

// serve evaluates one operation as a tablet does. The caller holds mu.
func (c *Cluster) serve(req *pb.TabletRequest) (*pb.TabletResponse, []mvcc.Mutation) {
	subject := wire.SubjectOf(req)
	if e := c.route(req, &subject); e != nil {
		return &pb.TabletResponse{Error: e}, nil
	}
	c.ops++
	if wire.OperationOf(req).By == wire.ByReader {
		return c.read(req, mvcc.Timestamp(subject.Latest)), nil
	}
	if one := req.GetOnePhase(); one != nil {
		return c.onePhase(one)
	}
	if p := req.GetPrewrite(); p.GetAsync() {
		return c.asyncPrewrite(p)
	}
	res, effects, err := evaluate.Rule(c.view, req, c.limits)
	if err != nil {
		return failure(err), nil
	}
	return evaluate.Result(res), effects
}

// read answers one read. The tablet gets a timestamp for a first read and for a request for
// changes.
func (c *Cluster) read(req *pb.TabletRequest, at mvcc.Timestamp) *pb.TabletResponse {
	if at > c.last {
		return refuse(pb.Error_CODE_FUTURE, "read in the future")
	}
	if (at == 0 && req.GetGet() != nil) || req.GetChanges() != nil {
		at = c.next(1)
	}
	v := evaluatetest.Mem{
		MemView: c.view, Tablet: c.tablet(req.TabletId), MaxSizes: c.limits, Origins: c.origins,
		From: c.recordedAbove,
	}
	resp, _, err := evaluate.Read(v, req, at) // without reservations
	if err != nil {
		return failure(err)
	}
	return resp
}

func (c *Cluster) onePhase(req *pb.OnePhaseRequest) (*pb.TabletResponse, []mvcc.Mutation) {
	r := wire.OnePhase(req)
	res, err := mvcc.CheckOnePhase(c.view, r)
	var effects []mvcc.Mutation
	var commitTS mvcc.Timestamp
	if err == nil && res.Status == mvcc.StatusOK {
		commitTS = c.next(1)
		res, effects, err = mvcc.OnePhaseCommit(c.view, r, commitTS, c.limits)
	}
	if err != nil {
		return failure(err), nil
	}
	resp := evaluate.Result(res)
	if req.Spare && commitTS != 0 && res.Status == mvcc.StatusOK {
		resp.GetMutation().SpareTs = uint64(c.next(1))
	}
	return resp, effects
}

// asyncPrewrite locks the cells in one step, so that it needs no reservation.
func (c *Cluster) asyncPrewrite(req *pb.PrewriteRequest) (*pb.TabletResponse, []mvcc.Mutation) {
	r := wire.Prewrite(req)
	r.MinCommitTS = c.next(1)
	res, effects, err := mvcc.Prewrite(c.view, r, c.limits)
	if err != nil {
		return failure(err), nil
	}
	resp := evaluate.Result(res)
	if req.Spare && len(effects) > 0 {
		resp.GetMutation().SpareTs = uint64(c.next(1))
	}
	return resp, effects
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
func (c *Cluster) route(req *pb.TabletRequest, s *wire.Subject) *pb.Error {
	d := c.tablet(req.TabletId)
	e := &pb.Error{Code: pb.Error_CODE_WRONG_TABLET, Message: "not here"}
	wrong := d == nil || (req.Epoch != 0 && req.Epoch != d.Epoch)
	look := func(cell *pb.Cell) {
		at := wire.Position{Table: mvcc.TableID(cell.Table), Row: string(cell.Row)}
		wrong = wrong || !wire.Holds(d, at)
		e.Descriptors = append(e.Descriptors, c.tablets[c.find(at)])
	}
	for _, w := range s.Writes {
		look(w.Cell)
	}
	for _, list := range [][]*pb.Cell{s.Cells, s.Intents} {
		for _, cell := range list {
			look(cell)
		}
	}
	if s.HasCell && !s.Elsewhere {
		look(s.Cell)
	}
	if s.Span != nil && !wrong {
		clip, ok := wire.Clip(d, wire.Span(s.Span))
		wrong = !ok || clip != wire.Span(s.Span)
	}
	if !wrong {
		return nil
	}
	if d != nil {
		e.Descriptors = append(e.Descriptors, d)
	}
	return e
}

func refuse(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

func failure(err error) *pb.TabletResponse {
	if r := evaluate.Refusal(err); r != nil {
		return r
	}
	return refuse(pb.Error_CODE_INTERNAL, "%v", err)
}

package tablet

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Bounds of read answers.
const (
	maxPageBytes = 2 << 20
	maxPageRows  = 4 << 10
	rawCellBytes = 64 // counted beside a cell's row, column and value
)

// answer evaluates one read. A reservation that it has met means that it must be asked again later.
func answer(v *readView, call *Call) (r *pb.TabletResponse, met obstacle, err error) {
	switch op := call.Req.Op.(type) {
	case *pb.TabletRequest_Get:
		return answerGet(v, call, op.Get)
	case *pb.TabletRequest_Scan:
		return answerScan(v, wire.Scan(op.Scan))
	case *pb.TabletRequest_RawGet:
		r, err = answerRawGet(v, op.RawGet)
	case *pb.TabletRequest_RawScan:
		r, err = answerRawScan(v, op.RawScan)
	case *pb.TabletRequest_Walk:
		r, err = answerWalk(v, op.Walk)
	case *pb.TabletRequest_Pending:
		r, err = answerPending(v, op.Pending)
	case *pb.TabletRequest_History:
		r, err = answerHistory(v, op.History)
	default:
		r = failure(pb.Error_CODE_INVALID, "%T is not a read", call.Req.Op)
	}
	return r, obstacle{}, err
}

func answerGet(v *readView, call *Call, req *pb.GetRequest) (*pb.TabletResponse, obstacle, error) {
	at := v.readAt(call, req)
	out, bytes := newGetAnswer(len(req.Cells)), 0
	for i, c := range req.Cells {
		r, err := mvcc.Get(v, wire.Cell(c), at)
		if err != nil {
			return nil, obstacle{}, err
		}
		if r.Status == mvcc.StatusLocked && r.Lock.Lock.Token != 0 {
			return nil, metBy(&r.Lock.Lock), nil
		}
		if bytes += len(r.Value); bytes > v.tablet.cfg.Limits.Batch && i > 0 {
			out.get.Results = out.get.Results[:i] // the caller asks for the rest
			break
		}
		wire.FillReadResult(out.get.Results[i], &r)
	}
	if req.At == 0 {
		out.get.At = uint64(at)
	}
	return &out.response, obstacle{}, nil
}

// getAnswer is the answer to a Get in one allocation if it is of one cell, as most are,
// and in three if of more.
type getAnswer struct {
	response pb.TabletResponse
	result   pb.TabletResponse_Get
	get      pb.GetResponse
	list     [1]*pb.ReadResult
	one      pb.ReadResult
}

func newGetAnswer(cells int) *getAnswer {
	a := &getAnswer{}
	a.response.Result, a.result.Get = &a.result, &a.get
	if cells == 1 {
		a.list[0] = &a.one
		a.get.Results = a.list[:]
		return a
	}
	block := make([]pb.ReadResult, cells)
	a.get.Results = make([]*pb.ReadResult, cells)
	for i := range block {
		a.get.Results[i] = &block[i]
	}
	return a
}

func answerScan(v *readView, req mvcc.ScanRequest) (*pb.TabletResponse, obstacle, error) {
	span, ok := wire.Clip(v.descriptor, req.Span)
	if !ok {
		return v.elsewhere(), obstacle{}, nil
	}
	req.Span = span
	if req.MaxBytes <= 0 || req.MaxBytes > maxPageBytes {
		req.MaxBytes = maxPageBytes
	}
	r, err := mvcc.Scan(v, req)
	if err != nil {
		return nil, obstacle{}, err
	}
	if r.Status == mvcc.StatusLocked && r.Lock.Lock.Token != 0 {
		if r.Last == nil {
			return nil, metBy(&r.Lock.Lock), nil
		}
		r.Status, r.Done = mvcc.StatusOK, false // a page up to the reservation
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Scan{Scan: wire.ScanResultPB(r)}}, obstacle{}, nil
}

func (v *readView) elsewhere() *pb.TabletResponse {
	r := failure(pb.Error_CODE_WRONG_TABLET, "tablet %d holds nothing of that range", v.tablet.id)
	r.Error.Descriptors = []*pb.TabletDescriptor{v.descriptor}
	return r
}

func answerRawGet(v *readView, req *pb.RawGetRequest) (*pb.TabletResponse, error) {
	values, bytes := make([]*pb.RawValue, len(req.Cells)), 0
	for i, c := range req.Cells {
		value, ok, err := v.Raw(wire.Cell(c))
		if err != nil {
			return nil, err
		}
		if bytes += len(value); bytes > v.tablet.cfg.Limits.Batch {
			return failure(pb.Error_CODE_TOO_LARGE, "the answer to %d cells exceeds %d bytes: ask for fewer at once",
				len(req.Cells), v.tablet.cfg.Limits.Batch), nil
		}
		values[i] = &pb.RawValue{Found: ok, Value: value}
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_RawGet{RawGet: &pb.RawGetResponse{Values: values}}}, nil
}

func answerRawScan(v *readView, req *pb.RawScanRequest) (*pb.TabletResponse, error) {
	span, ok := wire.Clip(v.descriptor, wire.Span(req.Span))
	if !ok {
		return v.elsewhere(), nil
	}
	limit := int(req.MaxRows)
	if limit <= 0 || limit > maxPageRows {
		limit = maxPageRows
	}
	out, bytes := &pb.RawScanResponse{Done: true}, 0
	for c, err := range v.RawCells(span) {
		if err != nil {
			return nil, err
		}
		if len(out.Cells) >= limit || bytes >= maxPageBytes {
			out.Done = false
			break
		}
		out.Cells = append(out.Cells, &pb.ReadCell{Cell: wire.CellPB(c.Cell), Value: c.Value})
		bytes += rawCellBytes + len(c.Cell.Row) + len(c.Cell.Column) + len(c.Value)
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_RawScan{RawScan: out}}, nil
}

func answerHistory(v *readView, req *pb.HistoryRequest) (*pb.TabletResponse, error) {
	limit := int(req.Limit)
	if limit <= 0 || limit > mvcc.MaxHistory+1 {
		limit = mvcc.MaxHistory + 1
	}
	table := mvcc.TableID(req.Table)
	only := make([]mvcc.Cell, len(req.Cells))
	for i, c := range req.Cells {
		only[i] = wire.Cell(c)
	}
	entries, err := v.Row(table, wire.String(req.Row), limit, v.catalogue.columnsOf(table), only...)
	if err != nil {
		return nil, err
	}
	out := &pb.HistoryResponse{}
	for _, e := range entries {
		out.Entries = append(out.Entries, wire.HistoryEntryPB(e))
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_History{History: out}}, nil
}

package evaluate

import (
	"iter"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// View is the state on which a tablet's reads are evaluated. It must not change during a read.
type View interface {
	mvcc.View
	Descriptor() *pb.TabletDescriptor
	Limits() mvcc.Limits
	// RawCells iterates over the raw cells with rows in the span, by cell.
	RawCells(span mvcc.Span) iter.Seq2[mvcc.RawCell, error]
	// Row lists the entries of the row, or of only the given cells, in every group, at most
	// limit of each.
	Row(t mvcc.TableID, row string, limit int, only ...mvcc.Cell) ([]mvcc.HistoryEntry, error)
	// Notifies iterates over the column's notifications by row, starting at fromRow, or after
	// it if after is set.
	Notifies(column mvcc.ObservedColumn, fromRow string,
		after bool) iter.Seq2[mvcc.CellNotify, error]
	// Intents iterates over the column's weak intents by row and start timestamp, starting at
	// fromRow.
	Intents(t mvcc.TableID, column, fromRow string) iter.Seq2[mvcc.CellIntent, error]
	// Queue iterates over the column's notifications in the order in which they are
	// dispatched, starting after the given place; ok is false if the order is unknown.
	Queue(column mvcc.ObservedColumn, after uint64) (queue iter.Seq[Queued], ok bool)
	// Observers returns the observers of the tablet's catalogue.
	Observers() []*pb.ObserverInfo
	// Waiting counts the pending work of an observer.
	Waiting(o *pb.ObserverInfo) (*pb.ObserverPending, error)
	// Notified returns the number of notifications written so far.
	Notified() uint64
	// Early counts the pending work of the observer's column whose origin is a user's commit
	// at or before the timestamp. It may overcount but never undercounts.
	Early(o *pb.ObserverInfo, until mvcc.Timestamp) *pb.ObserverPending
	// Recorded returns the timestamp above which all changes are recorded, or 0 if it is not known
	// yet. If it is known and at most since, the recorded changes contain all with a commit
	// timestamp above since; otherwise they are nil. The caller must not change them.
	Recorded(since mvcc.Timestamp) (changes []mvcc.CellWrite, from mvcc.Timestamp)
	// Noted returns EffectsResponse.written and hidden, from what the leader has recorded since the
	// request's mark, and the next mark.
	Noted(req *pb.EffectsRequest) (written, hidden bool, mark *pb.EffectsMark)
}

// Queued is a notification and its place in the dispatch order.
type Queued struct {
	Place  uint64
	Notify mvcc.CellNotify
}

// Bounds of answers.
const (
	maxPageBytes   = 2 << 20
	maxPageRows    = 4 << 10
	maxWalkEntries = 1024
	rawCellBytes   = 64 // counted in addition to a cell's row, column and value
)

// Read evaluates one read. A Get and a request for changes read at the given timestamp. If a Get
// encounters the reservation of a one-phase commit, or a Scan does before it has read a cell, Read
// returns the reservation instead of an answer: the caller must repeat the read after the
// reservation is released.
func Read(v View, req *pb.TabletRequest,
	at mvcc.Timestamp) (r *pb.TabletResponse, met *mvcc.Lock, err error) {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		return get(v, op.Get, at)
	case *pb.TabletRequest_Scan:
		return scan(v, wire.Scan(op.Scan))
	case *pb.TabletRequest_RawGet:
		r, err = rawGet(v, op.RawGet)
	case *pb.TabletRequest_RawScan:
		r, err = rawScan(v, op.RawScan)
	case *pb.TabletRequest_Walk:
		r, err = walk(v, op.Walk)
	case *pb.TabletRequest_Changes:
		r, err = changes(v, req, at)
	case *pb.TabletRequest_Pending:
		r, err = pending(v, op.Pending)
	case *pb.TabletRequest_History:
		r, err = history(v, op.History)
	default:
		r = notRead(req)
	}
	return r, nil, err
}

func notRead(req *pb.TabletRequest) *pb.TabletResponse {
	return wire.Failure(pb.Error_CODE_INVALID, "%T is not a read", req.Op)
}

func get(v View, req *pb.GetRequest, at mvcc.Timestamp) (*pb.TabletResponse, *mvcc.Lock, error) {
	out, bytes := newGetAnswer(len(req.Cells)), 0
	for i, c := range req.Cells {
		cell := wire.Cell(c)
		r, err := mvcc.Get(v, cell, at)
		if err != nil {
			return nil, nil, err
		}
		if r.Status == mvcc.StatusLocked && r.Lock.Lock.Token != 0 {
			return nil, &r.Lock.Lock, nil
		}
		if bytes += len(r.Value); i > 0 && bytes > v.Limits().Batch {
			out.get.Results = out.get.Results[:i] // the caller sends a Get for the others
			break
		}
		if req.Origins && notifies(v, cell) {
			n, there, err := v.Notification(cell)
			if err != nil {
				return nil, nil, err
			}
			if there {
				r.Origin = n.Origin()
			}
		}
		wire.FillReadResult(out.get.Results[i], &r)
	}
	if req.At == 0 {
		out.get.At = uint64(at)
	}
	return &out.response, nil, nil
}

// notifies reports whether the cell may be an observer's notify cell.
func notifies(v View, cell mvcc.Cell) bool {
	if !cell.IsAck() {
		return true
	}
	w, _ := v.AckOf(cell.Table, cell.Column)
	return w.Own
}

// getAnswer is the answer to a Get, in one allocation for one cell, the usual case, and in
// three for more.
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

func scan(v View, req mvcc.ScanRequest) (*pb.TabletResponse, *mvcc.Lock, error) {
	span, ok := wire.Clip(v.Descriptor(), req.Span)
	if !ok {
		return elsewhere(v), nil, nil
	}
	req.Span = span
	if req.MaxBytes <= 0 || req.MaxBytes > maxPageBytes {
		req.MaxBytes = maxPageBytes
	}
	r, err := mvcc.Scan(v, req)
	if err != nil {
		return nil, nil, err
	}
	if r.Status == mvcc.StatusLocked && r.Lock.Lock.Token != 0 {
		if r.Last == nil {
			return nil, &r.Lock.Lock, nil
		}
		r.Status, r.Done = mvcc.StatusOK, false // answer with the cells before the reservation
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Scan{Scan: wire.ScanResultPB(r)}}, nil, nil
}

// elsewhere refuses a read of a range outside the tablet.
func elsewhere(v View) *pb.TabletResponse {
	r := wire.Failure(pb.Error_CODE_WRONG_TABLET, "tablet %d holds no row of the requested range",
		v.Descriptor().TabletId)
	r.Error.Descriptors = []*pb.TabletDescriptor{v.Descriptor()}
	return r
}

func rawGet(v View, req *pb.RawGetRequest) (*pb.TabletResponse, error) {
	values, bytes := make([]*pb.RawValue, len(req.Cells)), 0
	for i, c := range req.Cells {
		value, ok, err := v.Raw(wire.Cell(c))
		if err != nil {
			return nil, err
		}
		if bytes += len(value); bytes > v.Limits().Batch {
			return wire.Failure(pb.Error_CODE_TOO_LARGE,
				"the answer to %d cells exceeds %d bytes: ask for fewer at once",
				len(req.Cells), v.Limits().Batch), nil
		}
		values[i] = &pb.RawValue{Found: ok, Value: value}
	}
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_RawGet{RawGet: &pb.RawGetResponse{Values: values}},
	}, nil
}

func rawScan(v View, req *pb.RawScanRequest) (*pb.TabletResponse, error) {
	span, ok := wire.Clip(v.Descriptor(), wire.Span(req.Span))
	if !ok {
		return elsewhere(v), nil
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

func history(v View, req *pb.HistoryRequest) (*pb.TabletResponse, error) {
	limit := int(req.Limit)
	if limit <= 0 || limit > mvcc.MaxHistory+1 {
		limit = mvcc.MaxHistory + 1
	}
	table := mvcc.TableID(req.Table)
	only := make([]mvcc.Cell, len(req.Cells))
	for i, c := range req.Cells {
		only[i] = wire.Cell(c)
	}
	entries, err := v.Row(table, wire.String(req.Row), limit, only...)
	if err != nil {
		return nil, err
	}
	out := &pb.HistoryResponse{}
	for _, e := range entries {
		out.Entries = append(out.Entries, wire.HistoryEntryPB(e))
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_History{History: out}}, nil
}

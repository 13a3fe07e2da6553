package txn

import (
	"context"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// maxReadCells is the maximum number of cells in one message. The answer may have fewer
// results, but at least one: the rest is requested again.
const maxReadCells = 256

// readBatch is a set of cells to read with their results: the needed cells, sorted by position,
// then the prefetched ones. Its last fields hold a read of one cell, the most frequent message,
// without further allocations.
type readBatch struct {
	cells   []mvcc.Cell
	results []mvcc.ReadResult // one for each cell
	need    int               // cells after the first need are prefetched: their locks are not awaited
	places  []int             // index of each needed cell in the caller's order
	wait    request.Retry     // between attempts
	opens   bool              // the reader's first batch: it obtains the timestamp
	origins bool              // also request the origins of the cells' notifications

	cellRoom   [1]mvcc.Cell
	resultRoom [1]mvcc.ReadResult
	message    getMessage
}

// getMessage is the message for one cell in one allocation.
type getMessage struct {
	req  pb.TabletRequest
	op   pb.TabletRequest_Get
	get  pb.GetRequest
	cell pb.Cell
	list [1]*pb.Cell
}

// newReadBatch sorts cells[which...] by position.
func newReadBatch(cells []mvcc.Cell, which []int) *readBatch {
	slices.SortFunc(which, func(a, b int) int { return cells[a].Compare(cells[b]) })
	b := &readBatch{places: which, need: len(which), cells: make([]mvcc.Cell, len(which))}
	b.results = make([]mvcc.ReadResult, len(which))
	for i, w := range which {
		b.cells[i] = cells[w]
	}
	return b
}

// part returns a batch of b's cells from lo to hi that shares b's results.
func (b *readBatch) part(lo, hi int) *readBatch {
	need := max(0, min(b.need, hi)-lo)
	return &readBatch{cells: b.cells[lo:hi], results: b.results[lo:hi], need: need, wait: b.wait,
		origins: b.origins}
}

// readAll fills in the results with one message per tablet and maxReadCells cells, in parallel.
// It waits for locks or resolves them. If at is 0 it obtains the timestamp: with the read itself if
// one message is enough, otherwise from the oracle.
func (r *reader) readAll(ctx context.Context, at mvcc.Timestamp, b *readBatch) error {
	var parts []*readBatch
	for lo := 0; lo < len(b.cells); {
		d, err := r.c.router.Locate(ctx, request.PosOf(b.cells[lo]))
		if err != nil {
			return err
		}
		hi := lo + 1
		for hi < len(b.cells) && hi-lo < maxReadCells && wire.Holds(d, request.PosOf(b.cells[hi])) {
			hi++
		}
		if lo == 0 && hi == len(b.cells) {
			return r.readTablet(ctx, d, at, b)
		}
		parts = append(parts, b.part(lo, hi))
		lo = hi
	}
	if at == 0 { // several tablets must read at one timestamp
		var err error
		if at, err = r.timestamp(ctx); err != nil {
			return err
		}
		r.tookTimestamp(b, at)
	}
	return request.Parallel(len(parts), func(i int) error {
		return r.readAll(ctx, at, parts[i])
	})
}

// readTablet reads cells that d holds by the cached map.
func (r *reader) readTablet(ctx context.Context, d *pb.TabletDescriptor, at mvcc.Timestamp,
	b *readBatch) error {
	floor := r.c.oracle.Seen()
	req := b.request(at)
	req.Trace = r.span.Sent()
	resp, v, err := r.c.router.Try(ctx, d, req)
	r.c.stats.Reads.Add(1)
	r.c.stats.ReadCells.Add(uint64(len(b.cells)))
	if v == request.Answered && at == 0 {
		taken := mvcc.Timestamp(resp.GetGet().GetAt())
		if err = r.c.oracle.Accept(taken, taken, floor); err != nil {
			v = request.Unknown
		} else {
			at = taken
			r.tookTimestamp(b, at)
		}
	}
	switch v {
	case request.Answered:
	case request.Refused, request.Busy:
		return err
	default: // A read may be repeated after any failure.
		if err := b.wait.Again(ctx, r.c.cfg.OperationTimeout, v, err); err != nil {
			return err
		}
		return r.readAll(ctx, at, b)
	}
	// Fewer results than cells mean that the rest did not fit into the answer.
	results := resp.GetGet().GetResults()
	if len(results) == 0 || len(results) > len(b.cells) {
		return Errorf("%w: a tablet returned %d results for %d cells", ErrUnavailable, len(results),
			len(b.cells))
	}
	var locked []mvcc.LockInfo
	for i, result := range results {
		b.results[i] = wire.ReadResult(result)
		switch b.results[i].Status {
		case mvcc.StatusOK:
		case mvcc.StatusLocked:
			if i < b.need {
				locked = append(locked, *b.results[i].Lock)
			}
		case mvcc.StatusTooOld:
			return ErrSnapshotTooOld
		default:
			return Errorf("%w: a read was answered with status %d", ErrUnavailable,
				b.results[i].Status)
		}
	}
	if err := r.readLocked(ctx, at, b, locked); err != nil {
		return err
	}
	if n := len(results); n < len(b.cells) {
		rest := b.part(n, len(b.cells))
		rest.wait = request.Retry{}
		return r.readAll(ctx, at, rest)
	}
	return nil
}

// readLocked resolves the encountered locks, or waits for them, and reads their cells again.
func (r *reader) readLocked(ctx context.Context, at mvcc.Timestamp, b *readBatch,
	locked []mvcc.LockInfo) error {
	// The read must wait: while a lock with start_ts ≤ R exists, the value at R is undecided
	// (design section 4, "Snapshots"). The reader holds no locks, so it cannot deadlock.
	for round := 0; len(locked) > 0; round++ {
		if _, err := r.c.resolver.resolve(ctx, locked, round, true); err != nil {
			return err
		}
		var which []int
		for i := range b.need {
			if b.results[i].Status == mvcc.StatusLocked {
				which = append(which, i)
			}
		}
		again := newReadBatch(b.cells, which)
		again.need, again.origins = 0, b.origins // with need 0, readAll returns locks to this loop
		if err := r.readAll(ctx, at, again); err != nil {
			return err
		}
		locked = locked[:0]
		for i, w := range which {
			b.results[w] = again.results[i]
			if b.results[w].Status == mvcc.StatusLocked {
				locked = append(locked, *b.results[w].Lock)
			}
		}
	}
	return nil
}

// request builds the message for the whole batch.
func (b *readBatch) request(at mvcc.Timestamp) *pb.TabletRequest {
	// b.message holds one cell, and a sent message is not reused.
	if len(b.cells) > 1 || b.message.list[0] != nil {
		get := &pb.GetRequest{At: uint64(at), Cells: wire.CellsPB(b.cells), Origins: b.origins}
		return &pb.TabletRequest{Op: &pb.TabletRequest_Get{Get: get}}
	}
	m := &b.message
	fillCell(&m.cell, b.cells[0])
	m.list[0] = &m.cell
	m.get.At, m.get.Cells, m.get.Origins = uint64(at), m.list[:], b.origins
	m.op.Get = &m.get
	m.req.Op = &m.op
	return &m.req
}

// fillCell is like wire.CellPB but writes into p.
func fillCell(p *pb.Cell, c mvcc.Cell) {
	p.Table, p.Row, p.Class, p.Column = uint32(c.Table), wire.Bytes(c.Row), uint32(c.Class),
		wire.Bytes(c.Column)
}

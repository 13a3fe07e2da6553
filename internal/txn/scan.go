package txn

import (
	"context"
	"iter"
	"slices"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// scanPageBytes is the size, in bytes, at which a page ends; its last cell may exceed it.
	scanPageBytes = 1 << 20
	// maxScanRows is the maximum number of rows of one page.
	maxScanRows = 1 << 16
)

// A scan has two layers: scanner fetches pages of the snapshot, tablet by tablet, and merge
// overlays the transaction's buffered writes. Every page is one message, so tablets keep no
// state of a scan between pages, and a split, a new leader or a lock between pages costs one
// more message.

// scanner reads a range of one table from its tablets, page by page. It is not safe for
// concurrent use.
type scanner struct {
	c       *Client
	at      mvcc.Timestamp
	span    mvcc.Span // the rest of the range
	columns []string
	reverse bool
	wanted  int        // rows still wanted; 0: all
	resume  *mvcc.Cell // in the current tablet: begin after this cell
	// keysOnly leaves values out, and before, if not 0, the cells written at or after it. Nodes of
	// earlier releases ignore both.
	keysOnly bool
	before   mvcc.Timestamp
	oldest   mvcc.Timestamp // lowest commit timestamp left out because of `before` so far; 0: none
	trace    []byte         // the caller's span, for every request
	// records makes the scan yield write records in place of values, acks also those of
	// acknowledgments, and since, if not 0, also older records above it.
	records, acks bool
	since         mvcc.Timestamp
	resumeTS      uint64 // commit timestamp of the last record of the cell resume; 0: the cell is complete

	done   bool
	rounds int // waits for locks since the last progress
	wait   request.Retry
}

// page returns the next cells in scan order. It returns none only at the end.
func (s *scanner) page(ctx context.Context) ([]*pb.ReadCell, error) {
	// An empty page is not the end: the tablet may have skipped many cells without a value.
	for !s.done {
		cells, err := s.step(ctx)
		if err != nil || len(cells) > 0 {
			return cells, err
		}
	}
	return nil, nil
}

// step sends one message. It may return no cells before the end.
func (s *scanner) step(ctx context.Context) ([]*pb.ReadCell, error) {
	d, err := s.tablet(ctx)
	if err != nil {
		return nil, err
	}
	// The tablet checks that it holds the whole span: it must not report as empty what it
	// has lost by a split.
	clip, ok := wire.Clip(d, s.span)
	if !ok {
		s.next(d)
		return nil, nil
	}
	s.c.stats.ScanPages.Add(1)
	resp, v, err := s.c.router.Try(ctx, d, s.request(clip))
	switch v {
	case request.Answered:
		return s.take(ctx, d, resp.GetScan())
	case request.Refused, request.Busy:
		return nil, err
	}
	return nil, s.wait.Again(ctx, s.c.cfg.OperationTimeout, v, err)
}

// tablet returns the tablet in which the scan continues.
func (s *scanner) tablet(ctx context.Context) (*pb.TabletDescriptor, error) {
	if s.resume != nil {
		return s.c.router.Locate(ctx, request.PosOf(*s.resume))
	}
	if !s.reverse {
		return s.c.router.Locate(ctx, wire.Position{Table: s.span.Table, Row: s.span.Start})
	}
	if s.span.HasEnd {
		return s.c.router.LocateBefore(ctx, wire.Position{Table: s.span.Table, Row: s.span.End})
	}
	last := strings.Repeat("\xff", s.c.cfg.Limits.Row) // no row is above it
	return s.c.router.Locate(ctx, wire.Position{Table: s.span.Table, Row: last})
}

// request requests one row more than wanted: a page that is done with fewer has reached the
// end of the span.
func (s *scanner) request(clip mvcc.Span) *pb.TabletRequest {
	scan := &pb.ScanRequest{
		At: uint64(s.at), Span: wire.SpanPB(clip), Reverse: s.reverse, MaxBytes: scanPageBytes,
		MaxRows: s.maxRows(), KeysOnly: s.keysOnly, WrittenBefore: uint64(s.before),
	}
	for _, column := range s.columns {
		scan.Columns = append(scan.Columns, wire.Bytes(column))
	}
	if s.resume != nil {
		scan.Resume = wire.CellPB(*s.resume)
	}
	if s.records {
		scan.Records, scan.Acks, scan.Since, scan.ResumeTs = true, s.acks, uint64(s.since), s.resumeTS
		scan.MaxBytes = recordPageBytes
	}
	return &pb.TabletRequest{Op: &pb.TabletRequest_Scan{Scan: scan}, Trace: s.trace}
}

// maxRows returns the maximum number of rows of the next page.
func (s *scanner) maxRows() uint32 {
	if s.wanted <= 0 {
		return maxScanRows
	}
	return uint32(min(s.wanted+1, maxScanRows))
}

// take advances past a page, and resolves the lock that ended it, if any.
func (s *scanner) take(ctx context.Context, d *pb.TabletDescriptor,
	page *pb.ScanResponse) ([]*pb.ReadCell, error) {
	switch page.GetStatus() {
	case pb.Status_STATUS_OK:
	case pb.Status_STATUS_LOCKED:
		return s.takeLocked(ctx, page)
	case pb.Status_STATUS_TOO_OLD:
		return nil, ErrSnapshotTooOld
	default:
		return nil, Errorf("%w: a scan was answered with %v", ErrUnavailable, page.GetStatus())
	}
	s.rounds = 0
	s.leftOut(mvcc.Timestamp(page.OldestTs))
	// Done with as many rows as requested may mean the end of the rows or of the span: the
	// next page shows which.
	if page.Done && rowsOf(page.Cells) < int(s.maxRows()) {
		s.wait = request.Retry{}
		s.next(d)
		return page.Cells, nil
	}
	if !s.after(page) {
		err := Errorf("%w: the tablet answered a scan with a page without progress", ErrUnavailable)
		return nil, s.wait.Again(ctx, s.c.cfg.OperationTimeout, request.AskLater, err)
	}
	s.wait = request.Retry{}
	return page.Cells, nil
}

// takeLocked handles a page that ends at a lock. The cells before the lock are valid.
func (s *scanner) takeLocked(ctx context.Context, page *pb.ScanResponse) ([]*pb.ReadCell, error) {
	s.leftOut(mvcc.Timestamp(page.OldestTs))
	if s.after(page) {
		s.rounds = 0
	}
	if len(page.Cells) > 0 {
		return page.Cells, nil // the next page starts with the lock
	}
	lock := []mvcc.LockInfo{wire.LockInfo(page.Lock)}
	_, err := s.c.resolver.resolve(ctx, lock, s.rounds, true)
	s.rounds++
	return nil, err
}

// leftOut records the commit timestamp of a cell that `before` omits; 0 means of none.
func (s *scanner) leftOut(ts mvcc.Timestamp) {
	if ts != 0 && (s.oldest == 0 || ts < s.oldest) {
		s.oldest = ts
	}
}

// after advances the scan past the last cell of the page. It returns false if the page made no
// progress.
func (s *scanner) after(page *pb.ScanResponse) bool {
	last := page.Last
	if n := len(page.Cells); last == nil && n > 0 {
		last = page.Cells[n-1].Cell
	}
	if last == nil {
		return false
	}
	cell := wire.Cell(last)
	// A page of records that ends in the same cell as the one before has made progress if the
	// timestamp of its last record differs.
	inside := s.records && s.resumeTS != page.LastTs
	if s.records {
		s.resumeTS = page.LastTs
	}
	if s.resume != nil && *s.resume == cell {
		return inside
	}
	s.resume = &cell
	return true
}

// next advances the scan past the tablet d.
func (s *scanner) next(d *pb.TabletDescriptor) {
	s.resume, s.resumeTS = nil, 0
	if s.reverse {
		start := wire.StartOf(d)
		if start.Table < s.span.Table || start.Row <= s.span.Start {
			s.done = true
			return
		}
		s.span.End, s.span.HasEnd = start.Row, true
		return
	}
	end, bounded := wire.EndOf(d)
	if !bounded || end.Table > s.span.Table || (s.span.HasEnd && end.Row >= s.span.End) {
		s.done = true
		return
	}
	s.span.Start = end.Row
}

// rowsOf counts the rows of a page; the cells of one row are adjacent.
func rowsOf(cells []*pb.ReadCell) int {
	n := 0
	for i, c := range cells {
		if i == 0 || string(c.Cell.Row) != string(cells[i-1].Cell.Row) {
			n++
		}
	}
	return n
}

// merge is a scan overlaid with a transaction's buffered writes, up to the limit.
type merge struct {
	pages    scanner
	buffered []bufferedWrite // in scan order
	limit    int             // rows; 0: none
	rows     int
	row      string
	yield    func(mvcc.ReadCell, error) bool
}

// scan yields the cells of the range in scan order. buffered returns the writes to overlay.
func (r *reader) scan(ctx context.Context, spec ScanSpec,
	buffered func(mvcc.Span, []string) []bufferedWrite) iter.Seq2[mvcc.ReadCell, error] {
	return func(yield func(mvcc.ReadCell, error) bool) {
		id, err := r.c.meta.TableID(ctx, spec.Table)
		if err == nil {
			err = r.c.cfg.checkScan(spec)
		}
		if err != nil {
			yield(mvcc.ReadCell{}, err)
			return
		}
		span := mvcc.Span{Table: id, Start: spec.From, End: spec.Before, HasEnd: spec.HasBefore}
		if span.HasEnd && span.Start >= span.End {
			return
		}
		at, err := r.start(ctx)
		if err != nil {
			yield(mvcc.ReadCell{}, err)
			return
		}
		// Sorted without duplicates, as the tablet and bufferedIn require.
		columns := slices.Compact(slices.Sorted(slices.Values(spec.Columns)))
		m := merge{limit: spec.Limit, yield: yield}
		m.pages = scanner{
			c: r.c, at: at, span: span, columns: columns, reverse: spec.Reverse,
			trace: r.span.Sent(), keysOnly: spec.KeysOnly,
		}
		if buffered != nil {
			m.buffered = buffered(span, columns)
			if spec.Reverse {
				slices.Reverse(m.buffered)
			}
		}
		if err := m.run(ctx); err != nil {
			yield(mvcc.ReadCell{}, err)
		}
	}
}

// checkScan applies the limits. A range may end beyond the longest row, and it may begin just
// after the longest row: at that row with a zero byte appended.
func (c *Config) checkScan(s ScanSpec) error {
	if err := c.checkAddress(strings.TrimSuffix(s.From, "\x00"), ""); err != nil {
		return err
	}
	for _, column := range s.Columns {
		if err := c.checkAddress("", column); err != nil {
			return err
		}
	}
	return nil
}

// run yields the merged cells in order. It returns nil at the end, or when the user breaks the
// loop.
func (m *merge) run(ctx context.Context) error {
	for {
		m.pages.wanted = m.wanted()
		page, err := m.pages.page(ctx)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			m.flush(nil)
			return nil
		}
		for _, p := range page {
			cell := wire.Cell(p.Cell)
			overwritten, more := m.flush(&cell)
			if !more {
				return nil
			}
			if overwritten {
				continue
			}
			if !m.emit(mvcc.ReadCell{Cell: cell, Value: p.Value,
				CommitTS: mvcc.Timestamp(p.CommitTs)}) {
				return nil
			}
		}
	}
}

// wanted returns the number of rows to request. Each buffered delete may hide one of them.
func (m *merge) wanted() int {
	if m.limit == 0 {
		return 0
	}
	n := m.limit - m.rows + 1 // the row yielded last may be incomplete
	for _, w := range m.buffered {
		if w.kind == mvcc.KindDelete {
			n++
		}
	}
	return n
}

// flush emits the buffered writes that sort before the cell (all if it is nil), and reports
// whether one of them overwrites the cell.
func (m *merge) flush(before *mvcc.Cell) (overwritten, more bool) {
	for len(m.buffered) > 0 {
		w := m.buffered[0]
		order := -1
		if before != nil {
			order = w.cell.Compare(*before)
			if m.pages.reverse {
				order = -order
			}
		}
		if order > 0 {
			return false, true
		}
		m.buffered = m.buffered[1:]
		if w.kind == mvcc.KindPut && !m.emit(mvcc.ReadCell{Cell: w.cell, Value: w.value}) {
			return false, false
		}
		if order == 0 {
			return true, true
		}
	}
	return false, true
}

// emit yields one cell to the user. It returns false if the scan must end.
func (m *merge) emit(c mvcc.ReadCell) bool {
	if m.rows == 0 || c.Cell.Row != m.row {
		if m.limit > 0 && m.rows == m.limit {
			return false
		}
		m.rows++
		m.row = c.Cell.Row
	}
	if m.pages.keysOnly {
		c.Value = nil // of a buffered write, or from a node of an earlier release
		return m.yield(c, nil)
	}
	// Copy: the user may change the value, and its message or buffer may be read again.
	c.Value = handOut(c.Value)
	return m.yield(c, nil)
}

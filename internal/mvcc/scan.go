package mvcc

import "slices"

// maxUnshown is the number of consecutive cells that a page may read without returning one:
// deleted, too new or not requested. It bounds the work of a page that never reaches MaxBytes.
const maxUnshown = 1 << 14

// cellBytes is the size of a cell in a page in addition to its row, column and value, because tiny
// cells also use memory.
const cellBytes = 64

// Scan reads one page of a span. Locks on cells that the scan would show stop it even where there
// is no write record yet: the cell may come into being below the read timestamp.
//
// A page ends with Done when the span is exhausted or a cell of row MaxRows+1 comes up.
// Rows are counted within the page, the row of Resume too. It ends without Done after the
// cell with which the page's size (rows, columns and values, and cellBytes per cell) reaches
// MaxBytes, after maxUnshown cells with nothing to show, or at a lock (StatusLocked).
func Scan(v View, r ScanRequest) (ScanResult, error) {
	if r.At < v.Bound() || (r.Since != 0 && r.Since < v.Bound()) {
		return ScanResult{Status: StatusTooOld}, nil
	}
	span := r.span()
	// The write column and the locks are two groups in the same order: a page is the
	// write column up to where the first lock that matters would be in it.
	p := page{view: v, req: &r}
	p.findLock(span)
	for cw, err := range v.Cells(span, r.Reverse) {
		if err != nil {
			return ScanResult{}, err
		}
		// The page before may have ended inside a row.
		if !r.beyondResume(cw.Cell) {
			continue
		}
		if p.stopAtLock(cw.Cell, false) || p.rowsFull(cw.Cell.Row) {
			return p.end(), nil
		}
		full, err := p.look(cw)
		if err != nil {
			return ScanResult{}, err
		}
		if full {
			return p.end(), nil
		}
	}
	if !p.stopAtLock(Cell{}, true) {
		p.result.Done = true
	}
	return p.end(), nil
}

// span returns the request's span from the row of Resume on.
func (r *ScanRequest) span() Span {
	s := r.Span
	if r.Resume == nil {
		return s
	}
	if !r.Reverse {
		s.Start = max(s.Start, r.Resume.Row)
		return s
	}
	if end := r.Resume.Row + "\x00"; !s.HasEnd || end < s.End {
		s.End, s.HasEnd = end, true
	}
	return s
}

// order compares cells in the direction of the scan.
func (r *ScanRequest) order(a, b Cell) int {
	if r.Reverse {
		a, b = b, a
	}
	return a.Compare(b)
}

// beyondResume reports whether the cell comes after Resume, or is Resume and not done (ResumeTS).
func (r *ScanRequest) beyondResume(c Cell) bool {
	if r.Resume == nil {
		return true
	}
	order := r.order(c, *r.Resume)
	return order > 0 || (order == 0 && r.ResumeTS != 0)
}

// wants reports whether the scan shows cells like this one. Columns selects data columns only.
func (r *ScanRequest) wants(c Cell) bool {
	if c.Class == ClassAck {
		return r.Acks
	}
	return len(r.Columns) == 0 || slices.Contains(r.Columns, c.Column)
}

// page is a page being filled, up to the first lock that is in the way.
type page struct {
	view     View
	req      *ScanRequest
	lockCell Cell // the first lock in the way, if locked: no page gets beyond it
	lock     Lock
	locked   bool
	row      string // the row of the last cell shown
	rows     int
	bytes    int
	unshown  int
	last     Cell // the last cell looked at, if looked
	looked   bool
	result   ScanResult
}

// end completes the page.
func (p *page) end() ScanResult {
	if p.looked {
		last := p.last
		p.result.Last = &last
	}
	return p.result
}

// findLock finds the first lock that stops the scan. It may examine all locks of the span: they are
// in memory, and only transactions in flight have any.
func (p *page) findLock(span Span) {
	for c, l := range p.view.Locks(span, p.req.Reverse) {
		if l.blocks(p.req.At) && p.req.wants(c) && p.req.beyondResume(c) {
			p.lockCell, p.lock, p.locked = c, l, true
			return
		}
	}
}

// stopAtLock ends the page if the lock in the way comes no later than the cell, or than
// the end of the span.
func (p *page) stopAtLock(c Cell, atEnd bool) bool {
	if !p.locked || (!atEnd && p.req.order(p.lockCell, c) > 0) {
		return false
	}
	if !p.rowsFull(p.lockCell.Row) {
		p.result.Status = StatusLocked
		p.result.Lock = met(p.lockCell, p.lock)
	}
	return true
}

// rowsFull ends the page if the row is one too many.
func (p *page) rowsFull(row string) bool {
	// Only the next row's first cell shows that a row is whole.
	if p.req.MaxRows == 0 || p.rows < p.req.MaxRows || row == p.row {
		return false
	}
	p.result.Done = true
	return true
}

// look reads one cell and shows it if there is something to show; full means that the
// page ends after it.
func (p *page) look(cw CellWrite) (full bool, err error) {
	p.last, p.looked = cw.Cell, true
	p.unshown++
	switch {
	case !p.req.wants(cw.Cell):
	case p.req.Since != 0:
		return p.lookRecords(cw)
	case p.req.KeysOnly || p.req.WrittenBefore != 0:
		return p.lookKey(cw)
	default:
		res, err := readAt(p.view, cw.Cell, cw.Write, p.req.At)
		if err != nil {
			return false, err
		}
		if res.Found {
			p.show(cw.Cell, res)
		}
	}
	return p.full(), nil
}

// lookKey shows the cell if WrittenBefore does not exclude it, without reading its value unless
// the scan shows it.
func (p *page) lookKey(cw CellWrite) (full bool, err error) {
	w, ok, err := visible(p.view, cw.Cell, cw.Write, p.req.At)
	switch before := p.req.WrittenBefore; {
	case err != nil:
		return false, err
	case !ok || w.Kind == KindDelete:
	case before != 0 && w.CommitTS >= before:
		if p.result.Oldest == 0 || w.CommitTS < p.result.Oldest {
			p.result.Oldest = w.CommitTS
		}
	case p.req.KeysOnly:
		p.show(cw.Cell, ReadResult{CommitTS: w.CommitTS, StartTS: w.StartTS})
	default:
		res, err := readAt(p.view, cw.Cell, cw.Write, p.req.At)
		if err != nil {
			return false, err
		}
		p.show(cw.Cell, res)
	}
	return p.full(), nil
}

func (p *page) full() bool {
	return p.unshown >= maxUnshown || (p.req.MaxBytes > 0 && p.bytes >= p.req.MaxBytes)
}

// lookRecords shows the cell's records in (Since, At], the newest first. The page may end
// inside the cell: the records of one may take any number of pages.
func (p *page) lookRecords(cw CellWrite) (full bool, err error) {
	at := p.req.At
	if p.req.ResumeTS != 0 && p.req.order(cw.Cell, *p.req.Resume) == 0 {
		at = min(at, p.req.ResumeTS-1)
	}
	// Most cells have not changed.
	if cw.Write.CommitTS <= p.req.Since {
		return p.full(), nil
	}
	if cw.Write.CommitTS <= at {
		if err := p.record(cw.Cell, cw.Write); err != nil || p.full() {
			p.result.LastTS = cw.Write.CommitTS
			return true, err
		}
	}
	for w, err := range p.view.Older(cw.Cell, at) {
		if err != nil {
			return true, err
		}
		if w.CommitTS <= p.req.Since {
			break
		}
		if err := p.record(cw.Cell, w); err != nil || p.full() {
			p.result.LastTS = w.CommitTS
			return true, err
		}
	}
	return p.full(), nil
}

// record puts one record of a cell on the page.
func (p *page) record(c Cell, w Write) error {
	res, err := readAt(p.view, c, w, w.CommitTS)
	if err == nil {
		p.show(c, res)
	}
	return err
}

// show puts a cell on the page.
func (p *page) show(c Cell, res ReadResult) {
	if p.rows == 0 || c.Row != p.row {
		p.rows++
		p.row = c.Row
	}
	p.unshown = 0
	p.bytes += cellBytes + len(c.Row) + len(c.Column) + len(res.Value)
	cell := ReadCell{Cell: c, Value: res.Value, CommitTS: res.CommitTS}
	if p.req.Records {
		cell.StartTS, cell.Deleted = res.StartTS, res.Deleted
	}
	p.result.Cells = append(p.result.Cells, cell)
}

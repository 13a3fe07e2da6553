package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Pages of scans. A page that has reached its size, in cells or in bytes, ends at the next end of a
// row, or within the row at twice that size. Its token has the position after the page, the
// timestamp of the scan, and a hash of the request.

const (
	defaultPage, maxPage = 1000, 10000 // cells
	pageBytes            = 1 << 20     // of a page, approximately
)

// position is where a scan continues.
type position struct {
	of     uint64 // hash of the request
	at     uint64 // timestamp
	left   uint32 // rows left of the request's limit
	within bool   // the last row of the page goes on after column
	row    string // the last row of the page
	column string
}

// token encodes the position.
func (p position) token() string {
	b := binary.BigEndian.AppendUint64(nil, p.of)
	b = binary.BigEndian.AppendUint64(b, p.at)
	b = binary.BigEndian.AppendUint32(b, p.left)
	b = append(b, 0)
	if p.within {
		b[len(b)-1] = 1
	}
	b = binary.AppendUvarint(b, uint64(len(p.row)))
	return base64.RawURLEncoding.EncodeToString(append(append(b, p.row...), p.column...))
}

// parse decodes a token.
func parse(token string) (p position, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	const head = 8 + 8 + 4 + 1
	if err != nil || len(b) < head+1 {
		return p, false
	}
	p.of, p.at, p.left = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])
	p.within = b[head-1] == 1
	n, size := binary.Uvarint(b[head:])
	b = b[head+max(size, 0):]
	if size <= 0 || n > uint64(len(b)) {
		return p, false
	}
	p.row, p.column = string(b[:n]), string(b[n:])
	return p, true
}

// pager divides a scan into pages.
type pager struct {
	req      *gw.ScanRequest
	enc      encoder
	size     int // cells of a page
	position position
	resumed  bool
}

// resume sets the position to that of the request's token, or to the beginning.
func (p *pager) resume() error {
	same := proto.CloneOf(p.req)
	same.PageToken, same.PageCells, same.Encoding, same.Snapshot = "", 0, 0, nil
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(same)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(encoded)
	of := binary.BigEndian.Uint64(sum[:])
	if p.req.PageToken == "" {
		p.position = position{of: of, left: p.req.Limit}
		return nil
	}
	var ok bool
	if p.position, ok = parse(p.req.PageToken); !ok || p.position.of != of {
		return txn.Invalid(
			"the page token is malformed or of another request: repeat the scan's request with it")
	}
	p.resumed = true
	return nil
}

// narrow restricts the rows of the request to those after the position.
func (p *pager) narrow(rows percolator.RowRange) percolator.RowRange {
	at := &p.position
	if p.req.Reverse {
		rows = rows.Reverse()
	}
	if p.req.KeysOnly {
		rows = rows.KeysOnly()
	}
	switch {
	case !p.resumed:
	case p.req.Reverse && at.within:
		rows = rows.Before(at.row + "\x00")
	case p.req.Reverse:
		rows = rows.Before(at.row)
	case at.within:
		rows = rows.From(at.row)
	default:
		rows = rows.From(at.row + "\x00")
	}
	if p.req.Limit == 0 {
		return rows
	}
	left := int(at.left)
	if p.resumed && at.within {
		left++ // the row was counted before
	}
	return rows.Limit(left)
}

// seen reports whether an earlier page had the cell.
func (p *pager) seen(c percolator.Cell) bool {
	if !p.resumed || !p.position.within || c.Row != p.position.row {
		return false
	}
	if p.req.Reverse {
		return c.Column.Name >= p.position.column
	}
	return c.Column.Name <= p.position.column
}

// pages scans the rows and passes the pages to send until it returns false, or an error. The last page has
// no token; a scan without cells has one page.
func (p *pager) pages(ctx context.Context, from percolator.Reader, rows percolator.RowRange, cols []percolator.Column,
	at uint64, send func(*gw.ScanResponse) (bool, error)) error {
	page, bytes := &gw.ScanResponse{Timestamp: at}, 0
	last := p.position // after the last cell of the page
	last.at = at
	if p.req.Limit > 0 && p.position.left == 0 && !p.position.within {
		_, err := send(page)
		return err
	}
	for c, err := range from.Scan(ctx, rows, cols...) {
		if err != nil {
			return err
		}
		if p.seen(c) {
			continue
		}
		begins := c.Row != last.row || (len(page.Cells) == 0 && !last.within)
		full := len(page.Cells) >= p.size || bytes >= pageBytes
		if full && (begins || len(page.Cells) >= 2*p.size || bytes >= 2*pageBytes) {
			last.within = !begins
			page.PageToken = last.token()
			if more, err := send(page); err != nil || !more {
				return err
			}
			page, bytes = &gw.ScanResponse{Timestamp: at}, 0
		}
		if begins && last.left > 0 {
			last.left--
		}
		last.row, last.column, last.within = c.Row, c.Column.Name, true
		if p.req.KeysOnly {
			c.Value = nil
		} else if c.Value == nil {
			c.Value = []byte{}
		}
		page.Cells = append(page.Cells, p.enc.cell(c))
		bytes += len(c.Row) + len(c.Column.Name) + len(c.Value) + cellOverhead
	}
	_, err := send(page)
	return err
}

// cellOverhead is the size of a cell in an answer beyond its row, column and value, in bytes.
const cellOverhead = 32

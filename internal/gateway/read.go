package gateway

import (
	"context"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Read implements the service Gateway.
func (s *service) Read(ctx context.Context,
	r *connect.Request[gw.ReadRequest]) (*connect.Response[gw.ReadResponse], error) {
	req := r.Msg
	keys, err := keysOf(req.Keys)
	if err != nil {
		return nil, err
	}
	answer := &gw.ReadResponse{}
	read := func(ctx context.Context, from percolator.Reader) error {
		cells, err := from.GetMulti(ctx, keys...)
		if err != nil {
			return err
		}
		answer.Cells = encoder{req.Encoding == gw.Encoding_ENCODING_BYTES}.cells(keys, byKey(cells))
		answer.Timestamp = uint64(startOf(from))
		return nil
	}
	if req.GetSnapshot() == nil && len(keys) > 0 {
		// The first read of a transaction obtains its timestamp without another message.
		err = callerIn(ctx).db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error { return read(ctx, tx) })
	} else {
		var done func()
		var from percolator.Reader
		if from, done, err = s.snapshot(ctx, req.GetTimestamp(), req.GetSession()); err == nil {
			defer done()
			err = read(ctx, from)
		}
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

// startOf returns the timestamp of the snapshot that the reader reads.
func startOf(r percolator.Reader) percolator.Timestamp {
	return r.(interface{ StartTS() percolator.Timestamp }).StartTS()
}

// snapshot returns the reader of a session, of a timestamp, or of the newest state, for one call, which
// must call done at its end.
func (s *service) snapshot(ctx context.Context, at uint64, session string) (r percolator.Reader, done func(), err error) {
	who := callerIn(ctx)
	if session != "" {
		one, done, err := s.sessions.use(who, session)
		if err != nil {
			return nil, nil, err
		}
		return one.reader, done, nil
	}
	snap, err := who.snapshot(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	return snap, func() { _ = snap.Close() }, nil
}

// snapshot returns a snapshot at the timestamp; 0 is the newest state.
func (c *caller) snapshot(ctx context.Context, at uint64) (*percolator.Snapshot, error) {
	if at != 0 {
		return c.db.SnapshotAt(ctx, percolator.Timestamp(at))
	}
	return c.db.Snapshot(ctx)
}

// WaitFor implements the service Gateway.
func (s *service) WaitFor(ctx context.Context,
	r *connect.Request[gw.WaitForRequest]) (*connect.Response[gw.WaitForResponse], error) {
	pending, err := callerIn(ctx).db.WaitFor(ctx, percolator.Timestamp(r.Msg.Timestamp))
	if err != nil {
		return nil, err
	}
	answer := &gw.WaitForResponse{}
	for _, p := range pending {
		answer.Pending = append(answer.Pending, &gw.ObserverPending{
			Observer: p.Name, Parked: p.Parked, Held: p.Held,
		})
	}
	return connect.NewResponse(answer), nil
}

// Scan implements the service Gateway.
func (s *service) Scan(ctx context.Context, r *connect.Request[gw.ScanRequest],
	stream *connect.ServerStream[gw.ScanResponse]) error {
	return s.scan(ctx, r.Msg, func(page *gw.ScanResponse) (bool, error) { return true, stream.Send(page) })
}

// ScanPage implements the service Gateway.
func (s *service) ScanPage(ctx context.Context,
	r *connect.Request[gw.ScanRequest]) (*connect.Response[gw.ScanResponse], error) {
	var first *gw.ScanResponse
	err := s.scan(ctx, r.Msg, func(page *gw.ScanResponse) (bool, error) {
		first = page
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(first), nil
}

// scan passes the pages of the request to send until it returns false, or an error.
func (s *service) scan(ctx context.Context, req *gw.ScanRequest, send func(*gw.ScanResponse) (bool, error)) error {
	p := &pager{req: req, enc: encoder{req.Encoding == gw.Encoding_ENCODING_BYTES}, size: int(req.PageCells)}
	if p.size == 0 {
		p.size = defaultPage
	}
	if p.size > maxPage {
		return txn.Invalid("pages of %d cells; at most %d are possible", req.PageCells, maxPage)
	}
	rows, cols, err := rangeOf(req.Range)
	if err != nil {
		return err
	}
	if err := p.resume(); err != nil {
		return err
	}
	at := req.GetTimestamp()
	if p.position.at != 0 && req.GetSession() == "" {
		at = p.position.at
	}
	from, done, err := s.snapshot(ctx, at, req.GetSession())
	if err != nil {
		return err
	}
	defer done()
	return p.pages(ctx, from, p.narrow(rows), cols, uint64(startOf(from)), send)
}

package observer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Client is the part of the transaction layer that runs use. Its methods are safe for concurrent
// use.
type Client interface {
	// Begin starts a transaction on behalf of the observer. The first call of Start or GetRecords
	// obtains its start timestamp.
	Begin(ctx context.Context, observer string) (Txn, error)
	// Notification reads the notify cell's current entry in the notify group.
	Notification(ctx context.Context, c mvcc.Cell) (n mvcc.Notify, there bool, err error)
	// Notifications reads the current entries of several notify cells of one column, and leaves out
	// those that do not exist.
	Notifications(ctx context.Context, cells []mvcc.Cell) (map[mvcc.Cell]mvcc.Notify, error)
	// ClearNotify removes the entry as mvcc.ClearNotify does. left is the timestamp of an entry
	// that remains, or 0.
	ClearNotify(ctx context.Context, r mvcc.ClearNotifyRequest) (left mvcc.Timestamp, err error)
	// ClearNotifies removes the entries of several cells, as ClearNotify does.
	ClearNotifies(ctx context.Context, cells []mvcc.Cell, r mvcc.ClearNotifyRequest) error
	// TabletOf returns the tablet that serves the cell according to the cached routes, or 0. It
	// does not block.
	TabletOf(c mvcc.Cell) uint64
	// FailNotify records a failed run as mvcc.FailNotify does.
	FailNotify(ctx context.Context, r mvcc.FailNotifyRequest) error
}

// Txn is one run's transaction.
type Txn interface {
	// Start obtains the start timestamp.
	Start(ctx context.Context) (mvcc.Timestamp, error)
	// StartTS returns the start timestamp, or 0 before Start.
	StartTS() mvcc.Timestamp
	// GetRecords reads the newest write record of each cell visible at StartTS, including
	// deletes. It waits for or resolves locks and never skips them. The results of cells with a
	// notification carry its origin.
	GetRecords(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error)
	// Expect announces the rows of the changes before the first read. The message of that read then
	// also requests, in these rows, the columns that the observer's earlier runs have read.
	Expect(rows ...mvcc.Cell)
	// SetCell buffers a write of a cell of any class: data or acknowledgment.
	SetCell(c mvcc.Cell, value []byte)
	Commit(ctx context.Context) (mvcc.Timestamp, error)
	// BackgroundDone returns, after Commit, a channel that is closed when the locks left to
	// background resolution are resolved; nil if there were none.
	BackgroundDone() <-chan struct{}
	// Left returns, once the channel of BackgroundDone is nil or closed, the latest timestamp of
	// the notifications that the acknowledgments did not clear because their cells have changed
	// since the start; 0 if there is none.
	Left() mvcc.Timestamp
	// Failed returns why the transaction can no longer commit, usually the error of its first
	// failed read, or nil if it can. It is valid before Commit.
	Failed() error
	Rollback(ctx context.Context) error
	// SetOrigin sets the origin of the transaction's writes: the user commit that caused them
	// (docs/adr/0042).
	SetOrigin(origin mvcc.Timestamp)
	// Effects returns the columns that the user's function has read and written.
	Effects() txn.Effects
	// Trace makes subsequent operations children of the span; nil stops tracing.
	Trace(s *tracing.Span)
	// User returns the transaction for user code, which can neither commit nor roll it back.
	User() *percolator.Tx
}

// runBytes limits the bytes that one batch may buffer. It is lower than a client's limit, because
// the slots of all observers may run at once in one process, and a function that writes without
// end must not exhaust the memory of the others.
const runBytes = 32 << 20

// NewClient returns a Client that uses c.
func NewClient(c *txn.Client) Client { return client{c} }

type client struct{ c *txn.Client }

type transaction struct{ *txn.Txn }

// User implements Txn.
func (t transaction) User() *percolator.Tx { return handle.WrapTx(t.Txn) }

// GetRecords implements Txn.
func (t transaction) GetRecords(ctx context.Context,
	cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	return t.GetObserved(ctx, cells...)
}

// Begin implements Client.
func (c client) Begin(ctx context.Context, observer string) (Txn, error) {
	t, err := c.c.BeginLazy(ctx, txn.Options{Name: observer, Bytes: runBytes, Effects: true})
	if err != nil {
		return nil, err
	}
	return transaction{t}, nil
}

// Notification implements Client.
func (c client) Notification(ctx context.Context, cell mvcc.Cell) (mvcc.Notify, bool, error) {
	resp, err := c.send(ctx, cell, EntryRequest(cell))
	if err != nil {
		return mvcc.Notify{}, false, err
	}
	entries := resp.GetWalk().GetEntries()
	if len(entries) == 0 || wire.Cell(entries[0].Cell) != cell {
		return mvcc.Notify{}, false, nil
	}
	return wire.Notify(entries[0].Notify), true, nil
}

// Notifications implements Client. It sends one message to each tablet, or one for each cell until
// the tablet's node supports requests for several rows.
func (c client) Notifications(ctx context.Context,
	cells []mvcc.Cell) (map[mvcc.Cell]mvcc.Notify, error) {
	rest := slices.SortedFunc(slices.Values(cells), mvcc.Cell.Compare)
	found := make(map[mvcc.Cell]mvcc.Notify, len(cells))
	for len(rest) > 0 {
		req := EntryRequest(rest[0])
		walk := req.GetWalk()
		walk.Limit = uint32(len(rest))
		for _, cell := range rest {
			walk.Rows = append(walk.Rows, wire.Bytes(cell.Row))
		}
		resp, err := c.send(ctx, rest[0], req)
		if err != nil {
			return nil, err
		}
		for _, e := range resp.GetWalk().GetEntries() {
			found[wire.Cell(e.Cell)] = wire.Notify(e.Notify)
		}
		looked := int(resp.GetWalk().GetRows())
		rest = rest[max(1, min(looked, len(rest))):]
	}
	return found, nil
}

// EntryRequest returns the request for the entry of a notify cell. The answer may have the entry of
// a later row instead.
func EntryRequest(cell mvcc.Cell) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: &pb.WalkRequest{
		Group: uint32(mvcc.GroupNotify), Table: uint32(cell.Table), FromRow: wire.Bytes(cell.Row),
		Class: uint32(cell.Class), Column: wire.Bytes(cell.Column), Limit: 1,
	}}}
}

// ClearNotify implements Client.
func (c client) ClearNotify(ctx context.Context,
	r mvcc.ClearNotifyRequest) (mvcc.Timestamp, error) {
	resp, err := c.send(ctx, r.Cell, &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{
		ClearNotify: &pb.ClearNotifyRequest{
			Cell: wire.CellPB(r.Cell), UpTo: uint64(r.UpTo), Origin: uint64(r.Origin),
			Ended: uint64(r.Ended), Observer: r.Observer,
		},
	}})
	if err != nil {
		return 0, err
	}
	return mvcc.Timestamp(resp.GetMutation().GetCommitTs()), nil
}

// ClearNotifies implements Client. Until the cluster version supports requests for several cells,
// it sends one request per cell.
func (c client) ClearNotifies(ctx context.Context, cells []mvcc.Cell,
	r mvcc.ClearNotifyRequest) error {
	err := c.c.ClearNotifies(ctx, cells, r)
	if !errors.Is(err, percolator.ErrInvalid) {
		return err
	}
	return each(len(cells), func(i int) error {
		one := r
		one.Cell = cells[i]
		_, err := c.ClearNotify(ctx, one)
		return err
	})
}

// TabletOf implements Client.
func (c client) TabletOf(cell mvcc.Cell) uint64 { return c.c.TabletOf(cell) }

// FailNotify implements Client.
func (c client) FailNotify(ctx context.Context, r mvcc.FailNotifyRequest) error {
	_, err := c.send(ctx, r.Cell, &pb.TabletRequest{Op: &pb.TabletRequest_FailNotify{FailNotify: &pb.FailNotifyRequest{
		Cell: wire.CellPB(r.Cell), Ts: uint64(r.TS), Attempts: r.Attempts,
		ParkedTs: uint64(r.ParkedTS), Error: r.Error, Observer: r.Observer,
	}}})
	return err
}

// send sends an idempotent operation to the tablet of the cell's row.
func (c client) send(ctx context.Context, cell mvcc.Cell,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	resp, _, err := c.c.Send(ctx, wire.Position{Table: cell.Table, Row: cell.Row}, req)
	if err != nil {
		return nil, err
	}
	if e := resp.GetError(); e != nil { // never, by Send's contract
		return nil, fmt.Errorf("observer: send an operation: %s: %w", e.Message, percolator.ErrUnavailable)
	}
	return resp, nil
}

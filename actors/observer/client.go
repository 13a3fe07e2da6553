package observer

import (
	"context"
	"errors"
	"fmt"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Client is what runs need of the transaction layer. Its methods may be called concurrently.
type Client interface {
	// Begin starts a transaction in the observer's name. Its start timestamp is taken by
	// Start or GetRecords, whichever is called first.
	Begin(ctx context.Context, observer string) (Txn, error)
	// Notification reads the present entry of the cell in the notify group.
	Notification(ctx context.Context, c mvcc.Cell) (n mvcc.Notify, there bool, err error)
	// ClearNotify removes the entry as mvcc.ClearNotify does. left is the timestamp of an entry
	// that stays, or 0.
	ClearNotify(ctx context.Context, r mvcc.ClearNotifyRequest) (left mvcc.Timestamp, err error)
	// ClearNotifies removes the entries of several cells, as ClearNotify does.
	ClearNotifies(ctx context.Context, cells []mvcc.Cell, r mvcc.ClearNotifyRequest) error
	// TabletOf returns the tablet that is believed to hold the cell, or 0. It does not block.
	TabletOf(c mvcc.Cell) uint64
	// FailNotify records a failed run as mvcc.FailNotify does.
	FailNotify(ctx context.Context, r mvcc.FailNotifyRequest) error
}

// Txn is one run's transaction.
type Txn interface {
	// Start takes the start timestamp now.
	Start(ctx context.Context) (mvcc.Timestamp, error)
	// StartTS returns the start timestamp; 0 before it is taken.
	StartTS() mvcc.Timestamp
	// GetRecords reads the newest write record of each cell visible at StartTS, deletes
	// included. It waits for or resolves locks, never skips them. The results of cells with
	// a notification have its origin.
	GetRecords(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error)
	// SetCell buffers a write of a cell of any class.
	SetCell(c mvcc.Cell, value []byte)
	Commit(ctx context.Context) (mvcc.Timestamp, error)
	// Rest returns, after Commit, a channel that is closed when the locks that were left to be
	// ended in the background have been; nil if there were none.
	Rest() <-chan struct{}
	// Left returns, after that, the latest of the notifications that the acknowledgments have
	// not cleared, since their cells have changed after the start; 0 if there is none.
	Left() mvcc.Timestamp
	// Failed returns why the transaction cannot commit any more, before Commit is called:
	// usually the error of its first failed read. It is nil if it can commit.
	Failed() error
	Rollback(ctx context.Context) error
	// SetOrigin has what is written go back to a user's commit (docs/adr/0042).
	SetOrigin(origin mvcc.Timestamp)
	// Trace has what follows belong to the span; nil: to none.
	Trace(s *tracing.Span)
	// User returns the transaction for user code, which can neither commit nor roll it back.
	User() *percolator.Tx
}

// runBytes limits what one run may buffer. It is less than a client's limit, because all
// slots of all observers may run at once in one process, and a function that writes without
// end must not take the others' memory.
const runBytes = 32 << 20

// NewClient returns a Client that uses the process's coordinator.
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
	t, err := c.c.BeginLazy(ctx, txn.Options{Name: observer, Bytes: runBytes})
	if err != nil {
		return nil, err
	}
	return transaction{t}, nil
}

// Notification implements Client.
func (c client) Notification(ctx context.Context, cell mvcc.Cell) (mvcc.Notify, bool, error) {
	resp, err := c.send(ctx, cell, &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: &pb.WalkRequest{
		Group: uint32(mvcc.GroupNotify), Table: uint32(cell.Table), FromRow: wire.Bytes(cell.Row),
		Column: wire.Bytes(cell.Column), Limit: 1,
	}}})
	if err != nil {
		return mvcc.Notify{}, false, err
	}
	entries := resp.GetWalk().GetEntries()
	if len(entries) == 0 || wire.Cell(entries[0].Cell) != cell {
		return mvcc.Notify{}, false, nil
	}
	return wire.Notify(entries[0].Notify), true, nil
}

// ClearNotify implements Client.
func (c client) ClearNotify(ctx context.Context,
	r mvcc.ClearNotifyRequest) (mvcc.Timestamp, error) {
	resp, err := c.send(ctx, r.Cell, &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{
		ClearNotify: &pb.ClearNotifyRequest{
			Cell: wire.CellPB(r.Cell), UpTo: uint64(r.UpTo), Origin: uint64(r.Origin),
			Ended: uint64(r.Ended),
		},
	}})
	if err != nil {
		return 0, err
	}
	return mvcc.Timestamp(resp.GetMutation().GetCommitTs()), nil
}

// ClearNotifies implements Client. As long as the cluster does not know of requests for many
// cells, there is one for each.
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
		ParkedTs: uint64(r.ParkedTS), Error: r.Error,
	}}})
	return err
}

// send carries an idempotent operation to the tablet of the cell's row.
func (c client) send(ctx context.Context, cell mvcc.Cell,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	resp, _, err := c.c.Send(ctx, wire.Position{Table: cell.Table, Row: cell.Row}, req)
	if err != nil {
		return nil, err
	}
	if e := resp.GetError(); e != nil { // never, by Send's contract
		return nil, fmt.Errorf("observer: %s: %w", e.Message, percolator.ErrUnavailable)
	}
	return resp, nil
}

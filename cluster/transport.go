package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// OraclePort is how requests for timestamps reach this node's oracle.
type OraclePort = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// Transport is what of a node's own txn.Transport needs nothing of the node itself: where this node leads, operations go by
// pointer into the tablets' mailboxes, which is where they are batched, and nothing is
// copied or marshalled; elsewhere they go to the node that leads.
type Transport struct {
	carrier *Carrier
	oracles *Oracles
	meta    *Meta
	self    mvcc.Worker
}

var _ txn.AtOnce = (*Transport)(nil)

// NewTransport wires a node's transport.
func NewTransport(carrier *Carrier, oracles *Oracles, meta *Meta, self mvcc.Worker) *Transport {
	return &Transport{carrier: carrier, oracles: oracles, meta: meta, self: self}
}

// Send implements txn.Transport.
func (t *Transport) Send(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	r, err := t.carrier.Send(ctx, d, req)
	if at := r.GetGet().GetAt(); at != 0 { // a first read's timestamp, which the oracle gave its tablet
		t.oracles.Saw(mvcc.Timestamp(at))
	}
	return r, err
}

// Sender is the carrier as Meta needs it: it finds the leader and tries what was surely
// not done again, until ctx ends. What changes nothing, or the same thing however often
// it is done, is tried again after a lost answer too; of anything else the error then
// wraps errUnknown.
func (c *Carrier) Sender() Sender {
	return func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (r *pb.TabletResponse, err error) {
		for wait := time.Millisecond; ; wait = min(2*wait, senderPause) {
			r, err = c.attempt(ctx, tablet, req)
			if !errors.Is(err, errAgain) {
				return r, err
			}
			if ended := pauseFor(ctx, wait/2+rand.N(wait)); ended != nil {
				return nil, fmt.Errorf("%w (last attempt: %w)", ended, err)
			}
		}
	}
}

// senderPause is the longest pause between two attempts: an election takes about a
// second, and its end should be noticed soon.
const senderPause = 100 * time.Millisecond

var (
	errAgain = errors.New("try again")
	// errUnknown: whether the operation was done, or will be, is not known.
	errUnknown = errors.New("cluster: the answer was lost")
)

// attempt is one try of a Sender.
func (c *Carrier) attempt(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if deadline, ok := ctx.Deadline(); ok && req.DeadlineMs == 0 {
		// Another message for each attempt: what is late is dropped at the latest when
		// this attempt is given up.
		left := max(1, min(time.Until(deadline), attemptTimeout).Milliseconds())
		req = &pb.TabletRequest{TabletId: tablet, Epoch: req.Epoch, DeadlineMs: left, Op: req.Op}
	}
	r, err := c.Send(ctx, &pb.TabletDescriptor{TabletId: tablet}, req)
	lost := err != nil && !errors.Is(err, txn.ErrNotSent)
	code := r.GetError().GetCode()
	switch {
	case err == nil && r.GetError() == nil:
		return r, nil
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case lost || code == pb.Error_CODE_UNKNOWN || code == pb.Error_CODE_INTERNAL:
		if err == nil {
			err = errors.New(r.Error.Message)
		}
		if wire.OperationOf(req).Has(wire.Repeats) {
			return nil, fmt.Errorf("%w: %w", errAgain, err)
		}
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	switch e := r.Error; e.Code {
	case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_OVERLOADED, pb.Error_CODE_NOT_PROPOSED, pb.Error_CODE_UNAVAILABLE:
		return nil, fmt.Errorf("%w: %s", errAgain, e.Message)
	default:
		return nil, &txn.ServerError{Code: e.Code, Message: e.Message}
	}
}

// Timestamps implements txn.Transport.
func (t *Transport) Timestamps(ctx context.Context, count int) (first mvcc.Timestamp, n int, err error) {
	return t.oracles.Ask(ctx, count)
}

// TimestampsNow implements txn.AtOnce.
func (t *Transport) TimestampsNow(count int) (first mvcc.Timestamp, ok bool) {
	return t.oracles.Now(count)
}

// Locate implements txn.Transport.
func (t *Transport) Locate(ctx context.Context, table mvcc.TableID, row string, limit int) ([]*pb.TabletDescriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	held, err := t.carrier.router.Find(ctx, table, row, limit)
	if err != nil {
		return nil, refuse(pb.Error_CODE_UNAVAILABLE, "the tablet map could not be read: %v", err)
	}
	if len(held) == 0 {
		return nil, refuse(pb.Error_CODE_UNAVAILABLE, "no tablet is known to hold table %d row %.64q", table, row)
	}
	return held, nil
}

// CreateTable implements txn.Transport.
func (t *Transport) CreateTable(ctx context.Context, name string, splitKeys []string) (*pb.Table, error) {
	return t.meta.CreateTable(ctx, name, splitKeys)
}

// DropTable implements txn.Transport.
func (t *Transport) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	return t.meta.DropTable(ctx, name, uint32(id))
}

// Tables implements txn.Transport.
func (t *Transport) Tables(ctx context.Context) ([]*pb.Table, error) { return t.meta.Tables(ctx) }

// Catalogue implements txn.Transport.
func (t *Transport) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	return t.meta.Catalogue(ctx)
}

// SplitTablet implements txn.Transport.
func (t *Transport) SplitTablet(ctx context.Context, table string, row string) error {
	return t.meta.SplitTablet(ctx, table, row)
}

// WorkerDead implements txn.Transport: what gossip has positive knowledge of, and that
// this node's own earlier incarnations have ended, for the store is held by one process
// at a time.
func (t *Transport) WorkerDead(_ context.Context, w mvcc.Worker) bool {
	if w.Node == t.self.Node {
		return w.Node != 0 && w.Incarnation < t.self.Incarnation
	}
	return t.carrier.members != nil && t.carrier.members.Dead(w)
}

// Worker implements txn.Transport.
func (t *Transport) Worker() mvcc.Worker { return t.self }

// Close implements txn.Transport: the node outlives its handles.
func (t *Transport) Close() error { return nil }

package route

import (
	"context"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Transport is the routing part of a node's own txn.Transport. An operation on a tablet
// that this node leads goes by pointer into the tablet's mailbox, without being copied or
// marshalled; any other goes to the node that leads the tablet. It has no state, and its
// methods run on the coordinator's goroutines.
type Transport struct {
	carrier *Carrier
	oracles *Oracles
	self    mvcc.Worker
}

var _ txn.AtOnce = (*Transport)(nil)

// NewTransport returns the transport of the worker.
func NewTransport(carrier *Carrier, oracles *Oracles, self mvcc.Worker) *Transport {
	return &Transport{carrier: carrier, oracles: oracles, self: self}
}

// Send implements txn.Transport.
func (t *Transport) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	r, err := t.carrier.Send(ctx, d, req)
	// The tablet of a first read has taken this timestamp from the oracle.
	if at := r.GetGet().GetAt(); at != 0 {
		t.oracles.Saw(mvcc.Timestamp(at))
	}
	return r, err
}

// Timestamps implements txn.Transport.
func (t *Transport) Timestamps(ctx context.Context,
	count int) (first mvcc.Timestamp, n int, err error) {
	return t.oracles.Ask(ctx, count, false)
}

// TimestampsNow implements txn.AtOnce.
func (t *Transport) TimestampsNow(count int) (first mvcc.Timestamp, ok bool) {
	return t.oracles.Now(count)
}

// Locate implements txn.Transport.
func (t *Transport) Locate(ctx context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	held, err := t.carrier.router.Find(ctx, table, row, limit)
	if err != nil {
		return nil, unavailable("the tablet map could not be read: %v", err)
	}
	if len(held) == 0 {
		return nil, unavailable("no tablet is known to hold table %d row %.64q", table, row)
	}
	return held, nil
}

func unavailable(format string, args ...any) error {
	return &txn.ServerError{Code: pb.Error_CODE_UNAVAILABLE, Message: fmt.Sprintf(format, args...)}
}

// WorkerDead implements txn.Transport. It reports deaths of which gossip has positive
// knowledge, and this node's own earlier incarnations: they have ended, because one
// process at a time holds the store.
func (t *Transport) WorkerDead(_ context.Context, w mvcc.Worker) bool {
	if w.Node == t.self.Node {
		return w.Node != 0 && w.Incarnation < t.self.Incarnation
	}
	return t.carrier.members != nil && t.carrier.members.Dead(w)
}

// Worker implements txn.Transport.
func (t *Transport) Worker() mvcc.Worker { return t.self }

// Close implements txn.Transport. It does nothing, because the node outlives its handles.
func (t *Transport) Close() error { return nil }

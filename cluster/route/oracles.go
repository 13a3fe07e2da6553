package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file asks the oracle, on the caller's goroutine. Any number of questions may be in
// flight; they share only the greatest timestamp seen, which is atomic.

// OraclePort takes requests for timestamps to this node's oracle.
type OraclePort = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// NotLeader is the error of an oracle whose node does not lead meta. No timestamp was issued.
// Leader is the node that leads, or 0 if unknown.
type NotLeader struct{ Leader uint64 }

// Error names the leader, if it is known.
func (e *NotLeader) Error() string {
	if e.Leader == 0 {
		return "the node asked does not lead meta, and knows no node that does"
	}
	return fmt.Sprintf("the node asked does not lead meta; node %d does", e.Leader)
}

// Oracles sends requests for timestamps to the oracle of the node that leads meta (design section
// 6). Every node has an oracle, but only the one on meta's leader can confirm that it may grant
// timestamps.
//
// Each request to a node serves one caller alone, and late answers are dropped. So a timestamp is
// never older than its request.
type Oracles struct {
	carrier *Carrier
	local   func() *OraclePort // returns nil while this node's oracle does not run
	now     func(count int) (first mvcc.Timestamp, ok bool)
	clock   highest
}

// NewOracles returns an Oracles for the carrier's node. local returns the port of its
// oracle; now returns timestamps if that oracle can give them without a message.
func NewOracles(c *Carrier, local func() *OraclePort,
	now func(count int) (first mvcc.Timestamp, ok bool)) *Oracles {
	return &Oracles{carrier: c, local: local, now: now}
}

// Now returns timestamps if this node's oracle can give them at once, else false.
func (o *Oracles) Now(count int) (first mvcc.Timestamp, ok bool) {
	if first, ok = o.now(count); ok {
		o.clock.saw(first + mvcc.Timestamp(count-1))
	}
	return first, ok
}

// Seen returns the greatest timestamp that was received here or passed to Saw.
func (o *Oracles) Seen() mvcc.Timestamp { return o.clock.seen() }

// Saw records a timestamp that the oracle has issued.
func (o *Oracles) Saw(ts mvcc.Timestamp) { o.clock.saw(ts) }

// oracleAttempt limits one request to one node. The node may have to confirm its
// leadership by a round of messages first.
const oracleAttempt = time.Second

var errNoOracle = errors.New("no node grants timestamps at present")

// Ask returns the first of n consecutive timestamps, where n is at most count. It asks the
// believed leader of meta, then the nodes that may know the leader, each once. With bypass
// the limit of the local oracle's queue does not apply.
func (o *Oracles) Ask(ctx context.Context, count int,
	bypass bool) (first mvcc.Timestamp, n int, err error) {
	if first, ok := o.Now(count); ok {
		return first, count, nil
	}
	f := &forward{Carrier: o.carrier, d: metaTablet}
	req := &pb.TimestampsRequest{Count: uint32(count), Trace: tracing.Sent(ctx)}
	err = errNoOracle
	// If no leader is known, this node's own oracle may know more than the map.
	for node := cmp.Or(f.next(), f.self); node != 0 && ctx.Err() == nil; node = f.next() {
		f.tried = append(f.tried, node)
		var r *pb.TimestampsResponse
		r, err = o.askNode(ctx, node, req, bypass)
		var away *NotLeader
		switch {
		case err == nil:
			f.router.HintLeader(cluster.MetaTablet, node)
			o.clock.saw(mvcc.Timestamp(r.First) + mvcc.Timestamp(r.Count-1))
			return mvcc.Timestamp(r.First), int(r.Count), nil
		case errors.As(err, &away):
			f.follow(node, away.Leader)
		case errors.Is(err, errNoOracle):
			f.follow(node, 0)
		default: // no other node need be asked
			return 0, 0, fmt.Errorf("route: request timestamps: %w", err)
		}
	}
	if ctx.Err() != nil {
		return 0, 0, ctx.Err()
	}
	return 0, 0, fmt.Errorf("route: request timestamps: %w", err)
}

var metaTablet = &pb.TabletDescriptor{TabletId: cluster.MetaTablet}

// askNode asks the oracle of one node. The error is a NotLeader or wraps errNoOracle if
// another may be asked.
func (o *Oracles) askNode(ctx context.Context, node uint64, req *pb.TimestampsRequest,
	bypass bool) (r *pb.TimestampsResponse, err error) {
	if node == o.carrier.self {
		port := o.local()
		if port == nil {
			return nil, errNoOracle
		}
		r, err = port.Ask(ctx, req, bypass)
	} else {
		r, err = o.askPeer(ctx, node, req)
	}
	switch {
	case errors.Is(err, actorkit.ErrOverloaded):
		return nil, &txn.ServerError{
			Code: pb.Error_CODE_OVERLOADED, RetryAfter: overloadedRetry,
			Message: "too many requests for timestamps are waiting: try again",
		}
	case err == nil && r.GetCount() == 0:
		return nil, errNoOracle
	}
	return r, err
}

// askPeer asks another node's oracle.
func (o *Oracles) askPeer(ctx context.Context, node uint64,
	req *pb.TimestampsRequest) (*pb.TimestampsResponse, error) {
	if o.carrier.peers == nil {
		return nil, fmt.Errorf("%w: %w: node %d is unreachable", errNoOracle, txn.ErrNotSent, node)
	}
	ctx, cancel := context.WithTimeout(ctx, oracleAttempt)
	defer cancel()
	r, err := o.carrier.peers.Call(ctx, node,
		&wire.PeerRequest{Body: &wire.PeerRequest_Timestamps{Timestamps: req}})
	switch e := r.GetError(); {
	case err != nil:
		return nil, fmt.Errorf("%w: ask node %d: %w", errNoOracle, node, err)
	case e.GetCode() == pb.Error_CODE_NOT_LEADER:
		return nil, &NotLeader{e.GetLeaderNode()}
	case e.GetCode() == pb.Error_CODE_OVERLOADED:
		return nil, actorkit.ErrOverloaded
	case e != nil:
		return nil, &txn.ServerError{Code: e.Code, Message: e.Message}
	}
	return r.GetTimestamps(), nil
}

// highest is the greatest timestamp passed to it. It never decreases.
type highest struct{ ts atomic.Uint64 }

func (h *highest) saw(ts mvcc.Timestamp) {
	for seen := h.ts.Load(); seen < uint64(ts) &&
		!h.ts.CompareAndSwap(seen, uint64(ts)); seen = h.ts.Load() {
		continue
	}
}

func (h *highest) seen() mvcc.Timestamp { return mvcc.Timestamp(h.ts.Load()) }

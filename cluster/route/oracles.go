package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file asks the oracle. Ask waits on its caller's goroutine. Tell does not wait: its
// question is continued by callbacks of this node's oracle or of package peer, on their
// goroutines. Any number of questions may be in flight; they share only the greatest
// timestamp seen, which is atomic.

// OraclePort takes requests for timestamps to this node's oracle.
type OraclePort = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// NotLeader is the error of an oracle whose node does not lead meta. No timestamp was given
// out. Leader is the node that leads, 0 if that is not known.
type NotLeader struct{ Leader uint64 }

// Error names the leader.
func (e *NotLeader) Error() string {
	return fmt.Sprintf("route: meta is not led from here, but from node %d", e.Leader)
}

// Oracles asks the oracle of the node that leads meta, whichever that is (design section
// 6). Every node has an oracle, but only the one beside meta's leader can confirm that it
// may give out timestamps.
//
// Each request to a node serves one question alone, and late answers are dropped. So a
// timestamp is never older than the question that it answers.
type Oracles struct {
	carrier *Carrier
	local   func() *OraclePort // nil while this node's oracle does not run
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

// Saw records a timestamp that the oracle has given out.
func (o *Oracles) Saw(ts mvcc.Timestamp) { o.clock.saw(ts) }

// oracleAttempt limits one request to one node. The node may have to confirm its
// leadership by a round of messages first.
const oracleAttempt = time.Second

var errNoOracle = errors.New("route: no node gives timestamps now")

// Ask returns the first of n consecutive timestamps, where n is at most count. It asks the
// believed leader of meta, then the nodes that may know the leader, each once.
func (o *Oracles) Ask(ctx context.Context, count int) (first mvcc.Timestamp, n int, err error) {
	if first, ok := o.Now(count); ok {
		return first, count, nil
	}
	if first, n, ok := o.atOnce(ctx, count); ok {
		return first, n, nil
	}
	type answer struct {
		first mvcc.Timestamp
		n     int
		err   error
	}
	done := make(chan answer, 1)
	deadline, _ := ctx.Deadline()
	o.Tell(count, deadline, false, func(first mvcc.Timestamp, n int, err error) {
		done <- answer{first, n, err}
	})
	select {
	case a := <-done:
		return a.first, a.n, a.err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// atOnce asks this node's oracle if this node leads meta, which saves the callbacks of
// Tell. ok is false if the oracle gave no timestamps.
func (o *Oracles) atOnce(ctx context.Context, count int) (first mvcc.Timestamp, n int, ok bool) {
	port := o.local()
	if port == nil || o.carrier.router.Leader(cluster.MetaTablet) != o.carrier.self {
		return 0, 0, false
	}
	r, err := port.Ask(ctx, &pb.TimestampsRequest{Count: uint32(count)}, false)
	if err != nil || r.GetCount() == 0 {
		return 0, 0, false
	}
	o.clock.saw(mvcc.Timestamp(r.First) + mvcc.Timestamp(r.Count-1))
	return mvcc.Timestamp(r.First), int(r.Count), true
}

// Tell is like Ask but does not wait: it calls then once, on any goroutine, at the latest
// soon after the deadline. A zero deadline means none. With bypass the limit of the local
// oracle's queue does not apply.
func (o *Oracles) Tell(count int, deadline time.Time, bypass bool,
	then func(first mvcc.Timestamp, n int, err error)) {
	q := &question{
		o: o, req: &pb.TimestampsRequest{Count: uint32(count)}, deadline: deadline, bypass: bypass,
		then: then,
	}
	q.askNext(0, nil)
}

// question is one request for timestamps, asked of one node after another. One goroutine
// at a time works on it: each step ends by passing it to a callback.
type question struct {
	o        *Oracles
	req      *pb.TimestampsRequest
	deadline time.Time
	bypass   bool
	tried    []uint64
	then     func(mvcc.Timestamp, int, error)
}

// askNext asks the next node: hint, which the last answer named, unless it was asked
// already, else another that may know. err is the last node's error.
func (q *question) askNext(hint uint64, err error) {
	f := &forward{Carrier: q.o.carrier, d: metaTablet, tried: q.tried, hint: hint}
	node := f.next()
	// If no leader is known, this node's own oracle may know more than the map.
	if node == 0 && len(q.tried) == 0 {
		node = q.o.carrier.self
	}
	if node == 0 || (!q.deadline.IsZero() && time.Now().After(q.deadline)) {
		if err == nil {
			err = errNoOracle
		}
		q.then(0, 0, fmt.Errorf("oracle: %w", err))
		return
	}
	// Clip, because the forward above shares the array.
	q.tried = append(slices.Clip(q.tried), node)
	if node == q.o.carrier.self {
		q.askLocal()
		return
	}
	q.askPeer(node)
}

var metaTablet = &pb.TabletDescriptor{TabletId: cluster.MetaTablet}

// askLocal asks this node's oracle.
func (q *question) askLocal() {
	port := q.o.local()
	if port == nil {
		q.askNext(0, errNoOracle)
		return
	}
	err := port.Tell(q.req, q.deadline, q.bypass, func(r actorkit.Result[*pb.TimestampsResponse]) {
		var away *NotLeader
		if errors.As(r.Err, &away) {
			q.redirect(q.o.carrier.self, away.Leader, r.Err)
			return
		}
		q.answered(q.o.carrier.self, r.Value, asServerError(r.Err))
	})
	if err != nil {
		q.then(0, 0, fmt.Errorf("oracle: %w", asServerError(err)))
	}
}

// asServerError returns the error of a full queue as a ServerError with a retry hint, and
// any other error unchanged.
func asServerError(err error) error {
	if !errors.Is(err, actorkit.ErrOverloaded) {
		return err
	}
	return &txn.ServerError{
		Code: pb.Error_CODE_OVERLOADED, RetryAfter: overloadedRetry,
		Message: "too many requests for timestamps are waiting: try again",
	}
}

// askPeer asks another node's oracle.
func (q *question) askPeer(node uint64) {
	if q.o.carrier.peers == nil {
		q.askNext(0, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node))
		return
	}
	until := time.Now().Add(oracleAttempt)
	if !q.deadline.IsZero() && q.deadline.Before(until) {
		until = q.deadline
	}
	req := &wire.PeerRequest{Body: &wire.PeerRequest_Timestamps{Timestamps: q.req}}
	q.o.carrier.peers.Tell(node, until, req, func(r *wire.PeerResponse, err error) {
		switch e := r.GetError(); {
		case err != nil:
			q.redirect(node, 0, err)
		case e.GetCode() == pb.Error_CODE_NOT_LEADER:
			q.redirect(node, e.GetLeaderNode(), &NotLeader{e.GetLeaderNode()})
		case e.GetCode() == pb.Error_CODE_OVERLOADED:
			q.answered(node, nil, asServerError(actorkit.ErrOverloaded))
		case e != nil:
			q.answered(node, nil, &txn.ServerError{Code: e.Code, Message: e.Message})
		default:
			q.answered(node, r.GetTimestamps(), nil)
		}
	})
}

// redirect records in the map what the answer says of meta's leader, and asks the next
// node.
func (q *question) redirect(node, leader uint64, err error) {
	router := q.o.carrier.router
	// If the node names no other leader, all that it says is that it does not lead.
	if leader != 0 && leader != node {
		router.HintLeader(cluster.MetaTablet, leader)
	} else {
		router.ForgetLeader(cluster.MetaTablet, node)
	}
	q.askNext(leader, err)
}

// answered ends the question with an answer, or with an error for which no other node need
// be asked.
func (q *question) answered(node uint64, r *pb.TimestampsResponse, err error) {
	if err != nil || r.GetCount() == 0 {
		if err == nil {
			err = errNoOracle
		}
		q.then(0, 0, fmt.Errorf("oracle: %w", err))
		return
	}
	q.o.carrier.router.HintLeader(cluster.MetaTablet, node)
	q.o.clock.saw(mvcc.Timestamp(r.First) + mvcc.Timestamp(r.Count-1))
	q.then(mvcc.Timestamp(r.First), int(r.Count), nil)
}

// highest is the greatest timestamp that it was given. It never falls.
type highest struct{ ts atomic.Uint64 }

func (h *highest) saw(ts mvcc.Timestamp) {
	for seen := h.ts.Load(); seen < uint64(ts) &&
		!h.ts.CompareAndSwap(seen, uint64(ts)); seen = h.ts.Load() {
		continue
	}
}

func (h *highest) seen() mvcc.Timestamp { return mvcc.Timestamp(h.ts.Load()) }

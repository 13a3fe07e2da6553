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

// This file asks the oracle. Ask waits on its caller's goroutine; Tell does not, and its
// question then moves from callback to callback: of this node's oracle, or of the peers'
// actor, on whatever goroutine those run. Any number of questions may be under way; all
// they share is the greatest timestamp seen, which is atomic.

// OraclePort takes requests for timestamps to this node's oracle.
type OraclePort = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// NotLeader is the error of this node's oracle when its replica of meta does not lead. No
// timestamp was given out.
type NotLeader struct{ Leader uint64 } // the node that leads, as far as is known; 0: it is not

// Error says where to go.
func (e *NotLeader) Error() string {
	return fmt.Sprintf("route: meta is not led from here, but from node %d", e.Leader)
}

// Oracles asks the oracle of the node that leads meta, wherever that is (design section
// 6). Every node has an oracle, and only the one beside meta's leader can confirm that it
// may answer.
//
// Each question to a node is a request of its own, and its answer serves that question
// alone: one that comes after its time is dropped, so a timestamp is never older than the
// question that it answers.
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

// Now is Ask without waiting. ok is false if no timestamp can be had that way.
func (o *Oracles) Now(count int) (first mvcc.Timestamp, ok bool) {
	if first, ok = o.now(count); ok {
		o.clock.saw(first + mvcc.Timestamp(count-1))
	}
	return first, ok
}

// Seen returns the greatest timestamp that has come through here, or that Saw was told.
func (o *Oracles) Seen() mvcc.Timestamp { return o.clock.seen() }

// Saw notes a timestamp that the oracle has surely given out.
func (o *Oracles) Saw(ts mvcc.Timestamp) { o.clock.saw(ts) }

// oracleAttempt bounds one question to one node, whose leadership may have to be
// confirmed by a round of votes, not more.
const oracleAttempt = time.Second

var errNoOracle = errors.New("route: no node gives timestamps now")

// Ask returns the first of n consecutive timestamps, n at most count. It asks the
// believed leader, then those that may know better, each once.
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

// atOnce asks this node's oracle if meta is led from here; it saves the callbacks of
// Tell. ok is false if the oracle has not answered with timestamps.
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

// Tell is Ask without waiting: then is called once, on any goroutine, soon after the
// deadline at the latest (zero: none). With bypass the local oracle's queue limit does
// not count.
func (o *Oracles) Tell(count int, deadline time.Time, bypass bool,
	then func(first mvcc.Timestamp, n int, err error)) {
	q := &question{
		o: o, req: &pb.TimestampsRequest{Count: uint32(count)}, deadline: deadline, bypass: bypass,
		then: then,
	}
	q.next(0, nil)
}

// question is one request for timestamps on its way from node to node. One goroutine at a
// time works on it: each step ends by handing it to a callback.
type question struct {
	o        *Oracles
	req      *pb.TimestampsRequest
	deadline time.Time
	bypass   bool
	tried    []uint64
	then     func(mvcc.Timestamp, int, error)
}

// next asks another node: hint, the node that the last answer named, unless it has been
// asked, or the next that may know. err is what the last node said.
func (q *question) next(hint uint64, err error) {
	f := &forward{Carrier: q.o.carrier, d: metaPlace, tried: q.tried, hint: hint}
	node := f.next()
	// Nobody is known to lead: this node's own oracle may know more than the map.
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
	// Clipped: the forward above has the same array.
	q.tried = append(slices.Clip(q.tried), node)
	if node == q.o.carrier.self {
		q.here()
		return
	}
	q.there(node)
}

var metaPlace = &pb.TabletDescriptor{TabletId: cluster.MetaTablet}

// here asks this node's oracle.
func (q *question) here() {
	port := q.o.local()
	if port == nil {
		q.next(0, errNoOracle)
		return
	}
	err := port.Tell(q.req, q.deadline, q.bypass, func(r actorkit.Result[*pb.TimestampsResponse]) {
		var away *NotLeader
		if errors.As(r.Err, &away) {
			q.elsewhere(q.o.carrier.self, away.Leader, r.Err)
			return
		}
		q.answered(q.o.carrier.self, r.Value, overloadedOracle(r.Err))
	})
	if err != nil {
		q.then(0, 0, fmt.Errorf("oracle: %w", overloadedOracle(err)))
	}
}

// overloadedOracle turns the refusal of a full queue into a ServerError with a retry
// hint. Any other error stays as it is.
func overloadedOracle(err error) error {
	if !errors.Is(err, actorkit.ErrOverloaded) {
		return err
	}
	return &txn.ServerError{
		Code: pb.Error_CODE_OVERLOADED, RetryAfter: overloadedRetry,
		Message: "more timestamps are asked for than there are: come again",
	}
}

// there asks another node's oracle.
func (q *question) there(node uint64) {
	if q.o.carrier.peers == nil {
		q.next(0, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node))
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
			q.elsewhere(node, 0, err)
		case e.GetCode() == pb.Error_CODE_NOT_LEADER:
			q.elsewhere(node, e.GetLeaderNode(), &NotLeader{e.GetLeaderNode()})
		case e.GetCode() == pb.Error_CODE_OVERLOADED:
			q.answered(node, nil, overloadedOracle(actorkit.ErrOverloaded))
		case e != nil:
			q.answered(node, nil, &txn.ServerError{Code: e.Code, Message: e.Message})
		default:
			q.answered(node, r.GetTimestamps(), nil)
		}
	})
}

// elsewhere goes on to the node that the answer names, after noting it in the map.
func (q *question) elsewhere(node, leader uint64, err error) {
	router := q.o.carrier.router
	// It knows who leads; otherwise only that it does not itself.
	if leader != 0 && leader != node {
		router.Led(cluster.MetaTablet, leader)
	} else {
		router.Unled(cluster.MetaTablet, node)
	}
	q.next(leader, err)
}

// answered ends the question with an answer, or with the error of one that asking
// elsewhere does not help.
func (q *question) answered(node uint64, r *pb.TimestampsResponse, err error) {
	if err != nil || r.GetCount() == 0 {
		if err == nil {
			err = errNoOracle
		}
		q.then(0, 0, fmt.Errorf("oracle: %w", err))
		return
	}
	q.o.carrier.router.Led(cluster.MetaTablet, node)
	q.o.clock.saw(mvcc.Timestamp(r.First) + mvcc.Timestamp(r.Count-1))
	q.then(mvcc.Timestamp(r.First), int(r.Count), nil)
}

// highest is the greatest of the timestamps it saw. It never falls.
type highest struct{ ts atomic.Uint64 }

func (h *highest) saw(ts mvcc.Timestamp) {
	for seen := h.ts.Load(); seen < uint64(ts) &&
		!h.ts.CompareAndSwap(seen, uint64(ts)); seen = h.ts.Load() {
		continue
	}
}

func (h *highest) seen() mvcc.Timestamp { return mvcc.Timestamp(h.ts.Load()) }

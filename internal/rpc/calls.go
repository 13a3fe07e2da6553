package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/txn"
)

// Bounds of single calls: how many are under way, and what their requests take, and then
// their answers until clients have taken them, of one connection and of all.
const (
	callsEach, callsInAll   = 128, 2048
	answersEach, answersAll = 8 << 20, 48 << 20

	// leastCall is what is taken at least for an answer before it is made. What changes
	// something answers less.
	leastCall = 16 << 10
	// callRetry is when a call that was refused may be tried again.
	callRetry = 20 * time.Millisecond
)

// calls is the budget of single calls. None waits: one that there is no room for is
// refused before anything is done, with CODE_OVERLOADED and when to come again. What an
// answer takes is taken before it is made, as much as the last one of its method took,
// and given back when gRPC has written it, or its connection has ended. If others want
// what a connection has not taken for patience, the connection is closed.
type calls struct {
	patience time.Duration

	mu     sync.Mutex
	sum    tally
	each   map[*clientConn]*tally
	expect map[string]int64 // by method: what an answer takes
}

// tally is what calls take; of one connection also which.
type tally struct {
	running int
	bytes   int64
	calls   map[*single]struct{}
}

// single is a call that is under way, or whose answer is not written yet.
type single struct {
	of    *calls
	conn  *clientConn
	bytes int64
	done  time.Time // since when its answer waits for the client; zero: it is under way
	over  bool
}

func newCalls(patience time.Duration) *calls {
	return &calls{patience: patience, each: map[*clientConn]*tally{}, expect: map[string]int64{}}
}

// begin takes what a call of the method is expected to take, with a request of so many bytes.
func (c *calls) begin(conn *clientConn, method string, request int64) (*single, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.each[conn]
	if own == nil {
		own = &tally{calls: map[*single]struct{}{}}
	}
	n := max(leastCall, c.expect[method]) + request
	switch {
	case own.running >= callsEach:
		return nil, overloaded("a connection may have %d calls under way: wait for answers", callsEach)
	case !c.fits(own, n) && !broken.UncountedCalls:
		return nil, overloaded("there is no room for the answer: read the answers that are on their way, or come again")
	case c.sum.running >= callsInAll:
		return nil, overloaded("the node has %d calls under way: come again", callsInAll)
	}
	k := &single{of: c, conn: conn, bytes: n}
	own.calls[k] = struct{}{}
	c.each[conn] = own
	own.running, c.sum.running = own.running+1, c.sum.running+1
	own.bytes, c.sum.bytes = own.bytes+n, c.sum.bytes+n
	return k, nil
}

// fits reports whether so many bytes more fit. If others than the connection itself are
// in the way, it has those closed that do not read.
func (c *calls) fits(own *tally, n int64) bool {
	if own.bytes+n > answersEach && own.bytes > 0 {
		return false
	}
	if c.sum.bytes+n <= answersAll {
		return true
	}
	for conn, t := range c.each {
		for k := range t.calls {
			if !k.done.IsZero() && time.Since(k.done) >= c.patience && conn != nil && conn.hanging.CompareAndSwap(false, true) {
				conn.hangUp(func() {})
				break
			}
		}
	}
	return false
}

// answered settles what the answer takes, which is n; an error if there is no room for it
// and asking again does no harm.
func (k *single) answered(method string, n int64) error {
	c := k.of
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.each[k.conn]
	e := c.expect[method]
	c.expect[method] = min(max(n, e-e/answersDecay), answersEach)
	if k.over {
		return nil // its connection has ended
	}
	if more := n - k.bytes; more > 0 && !c.fits(own, more) && lists[method] && !broken.UncountedCalls {
		return overloaded("there is no room for an answer of %d bytes: come again", n)
	}
	own.bytes, c.sum.bytes = own.bytes+n-k.bytes, c.sum.bytes+n-k.bytes
	own.running, c.sum.running = own.running-1, c.sum.running-1
	k.bytes, k.done = n, time.Now()
	return nil
}

// end gives back what the call takes. It may be called again.
func (k *single) end() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.drop()
}

// drop is end with mu held.
func (k *single) drop() {
	if k.over {
		return
	}
	k.over = true
	c, own := k.of, k.of.each[k.conn]
	if k.done.IsZero() {
		own.running, c.sum.running = own.running-1, c.sum.running-1
	}
	own.bytes, c.sum.bytes = own.bytes-k.bytes, c.sum.bytes-k.bytes
	if delete(own.calls, k); len(own.calls) == 0 {
		delete(c.each, k.conn)
	}
}

// gone ends all calls of a connection that has ended: gRPC forgets what it had to write.
func (c *calls) gone(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.each[conn]; own != nil {
		for k := range own.calls {
			k.drop()
		}
	}
}

// lists are the methods whose answers may be large, and that change nothing.
var lists = map[string]bool{
	pb.Percolator_Locate_FullMethodName: true, pb.Percolator_Tables_FullMethodName: true, pb.Percolator_GetCatalogue_FullMethodName: true,
	pb.Percolator_NodeStatus_FullMethodName: true, pb.Percolator_Observers_FullMethodName: true,
	pb.Admin_Nodes_FullMethodName: true, pb.Percolator_Nodes_FullMethodName: true,
}

// unread is an answer to a single call with what it takes until the client has read it.
type unread struct {
	message proto.Message
	call    *single
}

// unary counts calls.
func (c *calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !public(info.FullMethod) {
		return handler(ctx, req)
	}
	request := 0
	if m, ok := req.(proto.Message); ok {
		request = proto.Size(m)
	}
	k, err := c.begin(connection(ctx), info.FullMethod, int64(request))
	if err != nil {
		return nil, toStatus(err)
	}
	held := false
	defer func() { // also if the handler panics
		if !held {
			k.end()
		}
	}()
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	m, ok := resp.(proto.Message)
	if !ok {
		return resp, nil
	}
	if err := k.answered(info.FullMethod, int64(proto.Size(m))); err != nil {
		return nil, toStatus(err)
	}
	held = true
	return &unread{m, k}, nil
}

// overloaded is a refusal: nothing was done, and it may be asked again after callRetry.
func overloaded(format string, args ...any) error {
	return &txn.ServerError{Code: pb.Error_CODE_OVERLOADED, Message: fmt.Sprintf(format, args...), RetryAfter: callRetry}
}

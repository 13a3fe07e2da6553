package remoting

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc/status"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file holds the connections that this node makes. An endpoint lives from the first
// batch for a node's address until its connection, or the attempt at one, has failed. The
// batches in its waiting set are in flight between the caller of Send and the library's
// writer goroutine. Exactly one of Serialize, ended and the library's dead letters settles
// each, by an atomic swap.

// Timeouts and pauses of connections.
const (
	// connectTimeout limits an attempt until the other side has answered. After it the
	// batches that wait for the connection fail.
	connectTimeout = time.Second
	// pauseAfterLoss is the pause after a connection has ended. After each failed attempt
	// it doubles, up to maxPause. During a pause sending fails at once.
	pauseAfterLoss = 20 * time.Millisecond
	maxPause       = time.Second
)

// endpoint is one connection to one node, or the attempt at one. Its name in the library is
// never used again.
type endpoint struct {
	link       *Link
	node       uint64
	addr, name string
	pid        *actor.PID
	ctx        context.Context // of its stream
	cancel     context.CancelFunc
	connected  atomic.Bool // the other side has answered

	mu      sync.Mutex
	why     string // the connection could not be made; empty: not known
	dead    bool
	waiting map[*outgoing]struct{} // given to Send and not settled
}

// outgoing is a batch that was given to Send.
type outgoing struct {
	batch    *wire.PeerBatch
	endpoint *endpoint
	settled  atomic.Bool
	then     func(error)
}

var _ remote.RootSerializable = (*outgoing)(nil)

// Serialize implements remote.RootSerializable. The library's writer calls it just before it
// sends the batch.
func (o *outgoing) Serialize() (remote.RootSerialized, error) {
	// There is no connection: the library would write to a stream that only ends (see
	// connect).
	if !o.endpoint.connected.Load() {
		o.fail(ErrUnreachable)
		return nil, ErrUnreachable
	}
	// The sender has been told that the batch was not sent, so it must not be.
	if !o.settled.CompareAndSwap(false, true) {
		return nil, ErrUnreachable
	}
	o.endpoint.remove(o)
	o.endpoint.link.counts.sent.Add(1)
	o.then(nil)
	return serialized{o.batch}, nil
}

// fail reports that the batch will not be sent, unless it is settled already.
func (o *outgoing) fail(cause error) {
	if o.settled.CompareAndSwap(false, true) {
		// Before the callback, which may hand over the next batch.
		o.endpoint.remove(o)
		o.then(fmt.Errorf("%w: node %d at %s%s", cause, o.endpoint.node, o.endpoint.addr, o.endpoint.reason()))
	}
}

// serialized is a batch in the form that the library's writer expects.
type serialized struct{ *wire.PeerBatch }

// Deserialize implements remote.RootSerialized. The library calls it only for received
// messages, and batches are not received in this form.
func (serialized) Deserialize() (remote.RootSerializable, error) {
	return nil, ErrUnreachable
}

// fault keeps why the connection could not be made.
func (e *endpoint) fault(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.why = ": " + status.Convert(err).Message()
}

// reason returns what fault was told, for the end of an error; empty: nothing.
func (e *endpoint) reason() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// add adds a batch to the waiting set. It returns false if the endpoint has ended.
func (e *endpoint) add(o *outgoing) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return false
	}
	e.waiting[o] = struct{}{}
	return true
}

// remove removes a settled batch from the waiting set.
func (e *endpoint) remove(o *outgoing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, o)
}

// endpoint returns the endpoint of a node at an address and makes it if there is none. It
// returns an error while it is too early for another attempt.
func (l *Link) endpoint(node uint64, addr string) (*endpoint, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	t := l.nodes[node]
	if t == nil {
		t = &target{}
		l.nodes[node] = t
	}
	old := t.endpoint
	if old != nil && old.addr == addr {
		l.mu.Unlock()
		return old, nil
	}
	// A node that has moved is tried at its new address at once.
	if old == nil && time.Now().Before(t.retryAt) {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: node %d at %s%s", ErrUnreachable, node, addr, t.why)
	}
	// Every endpoint has its own name, so that what the library still does for the last one
	// does not affect this one.
	t.generation++
	// gRPC dials the name; passthrough leaves it to dial.
	name := fmt.Sprintf("passthrough:///n%d.g%d", node, t.generation)
	e := &endpoint{
		link: l, node: node, addr: addr, name: name, pid: actor.NewPID(name, receiver),
		waiting: make(map[*outgoing]struct{}),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	t.endpoint, l.endpoints[name] = e, e
	l.mu.Unlock()
	if old != nil {
		l.retire(old) // the node has moved
	}
	return e, nil
}

// named returns the live endpoint with the name, nil if there is none.
func (l *Link) named(name string) *endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endpoints[name]
}

// ended marks an endpoint as dead, once, and fails the batches that it has not sent. If the
// connection was up it then calls the function set by Lost, because batches on their way
// may not have arrived.
func (l *Link) ended(e *endpoint, cause error) {
	e.mu.Lock()
	if e.dead {
		e.mu.Unlock()
		return
	}
	e.dead = true
	var unsent []*outgoing
	for o := range e.waiting {
		// They are failed without the mutex, because fail takes it and runs callbacks.
		unsent = append(unsent, o)
	}
	e.mu.Unlock()
	connected := e.connected.Load()
	e.cancel()
	l.mu.Lock()
	delete(l.endpoints, e.name)
	// If the node has moved, a successor is there already.
	if t := l.nodes[e.node]; t.endpoint == e {
		t.endpoint = nil
		if connected {
			t.failures, t.why, t.retryAt = 0, "", time.Now().Add(pauseAfterLoss)
		} else {
			t.failures++
			t.why = e.reason()
			t.retryAt = time.Now().Add(min(pauseAfterLoss<<min(t.failures, 8), maxPause))
		}
	}
	lost, closed := l.lost, l.closed
	l.mu.Unlock()
	for _, o := range unsent {
		o.fail(cause)
	}
	if !connected {
		l.counts.failed.Add(1)
		return
	}
	l.counts.lost.Add(1)
	if !closed {
		l.log(slog.LevelInfo, "the connection to another node has ended", e)
	}
	if lost != nil {
		lost(e.node)
	}
}

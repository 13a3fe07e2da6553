package remoting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/connlimit"
	"github.com/percolator-go/percolator/internal/wire"
)

// Errors of Send: the batch was surely not sent.
var (
	// ErrNoAddress reports that the node's address is not known.
	ErrNoAddress = errors.New("remoting: the node's address is not known")
	// ErrUnreachable reports that the last connection to the node has ended, or the last attempt
	// at one has failed. A later batch makes the next attempt, after a pause of at most a second.
	ErrUnreachable = errors.New("remoting: the node cannot be reached")
	// ErrBusy reports that too many batches are queued for the node.
	ErrBusy = errors.New("remoting: too many batches wait for the node")
	// ErrClosed reports that this node's remoting is closed.
	ErrClosed = errors.New("remoting: closed")
)

// Config configures a Link.
type Config struct {
	// Listen is the host:port for other nodes. Port 0 means a free port.
	Listen string
	// Files are the node's certificates. With nil there is neither encryption nor
	// authentication.
	Files *certs.Files
	// Resolve returns the host:port of a node, false if it is not known now. It is called
	// for each batch and must not block.
	Resolve func(node uint64) (addr string, ok bool)
	// MaxConnections is the most connections of others on which a stream has begun; default
	// 1024. Streams on further ones are refused. Without Files one address may have half of them.
	MaxConnections int
	// MaxPending is the most connections of others on which no stream has begun, such as in their
	// handshakes; default 512. One more displaces the oldest of the address that has most of them,
	// see package connlimit.
	MaxPending int
	Logger     *slog.Logger
}

// Link is this node's end of the remoting.
//
// Send runs on its callers' goroutines and leaves batches to the goroutines of endpoints.
// Streams of other nodes hand batches over on goroutines of gRPC, one batch at a time over all
// streams (receiving). mu guards the fields below it and is not held while callbacks run.
type Link struct {
	cfg     Config
	addr    string
	server  *grpc.Server
	limiter *connlimit.Limiter // limits the connections that others open
	counts  counts
	running sync.WaitGroup // the server and the endpoints

	receives  chan struct{} // closed by the first Receive
	receiving sync.Mutex    // held while receive runs

	mu      sync.Mutex
	receive func(*wire.PeerBatch)
	lost    func(node uint64)
	nodes   map[uint64]*target // by node id
	closed  bool
}

var _ peer.Link = (*Link)(nil)

// target is the state of one other node, with or without a connection.
type target struct {
	endpoint *endpoint       // nil if there is none now
	ended    <-chan struct{} // endpoint.ended of the last one; nil: there was none
	failures int             // failed attempts since the last connection
	retryAt  time.Time       // no attempt is made before this time
	cause    error           // why the last attempt failed
	heard    uint64          // the newest incarnation that has sent a batch
}

// Open listens for other nodes. Their streams wait until Receive has been called.
// Connections to other nodes are made when there is something to send.
func Open(cfg Config) (*Link, error) {
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = 1024
	}
	if cfg.MaxPending <= 0 {
		cfg.MaxPending = 512
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	l := &Link{
		cfg: cfg, nodes: make(map[uint64]*target), limiter: newLimiter(cfg), receives: make(chan struct{}),
	}
	lis, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("remoting: listen: %w", err)
	}
	l.addr = lis.Addr().String()
	l.server = l.newServer()
	l.running.Go(func() {
		if err := l.server.Serve(l.limiter.Listen(lis)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			cfg.Logger.Error("listening for other nodes has ended", "error", err)
		}
	})
	return l, nil
}

// Addr returns the address that the link listens on.
func (l *Link) Addr() string { return l.addr }

// Receive implements peer.Link. Other nodes' streams wait until it is first called.
func (l *Link) Receive(fn func(*wire.PeerBatch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.receive == nil {
		close(l.receives)
	}
	l.receive = fn
}

// Lost implements peer.Link.
func (l *Link) Lost(fn func(node uint64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = fn
}

// Send implements peer.Link.
func (l *Link) Send(node uint64, b *wire.PeerBatch, then func(error)) error {
	addr, ok := l.cfg.Resolve(node)
	if !ok || addr == "" {
		return fmt.Errorf("%w: node %d", ErrNoAddress, node)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err := l.endpoint(node, addr)
	if err != nil {
		return err
	}
	select {
	case e.waiting <- outgoing{b, then}:
		return nil
	default:
		return fmt.Errorf("%w: node %d at %s", ErrBusy, node, addr)
	}
}

// endpoint returns the endpoint of a node at an address and starts it if there is none. It
// returns an error while it is too early for another attempt. The caller holds mu.
func (l *Link) endpoint(node uint64, addr string) (*endpoint, error) {
	if l.closed {
		return nil, ErrClosed
	}
	t := l.nodes[node]
	if t == nil {
		t = &target{}
		l.nodes[node] = t
	}
	switch {
	case t.endpoint != nil && t.endpoint.addr == addr:
		return t.endpoint, nil
	case t.endpoint != nil: // the node has moved, and is tried at its new address at once
		t.endpoint.cancel(errRetired)
	case time.Now().Before(t.retryAt):
		return nil, unreachable(node, addr, t.cause)
	}
	e := &endpoint{
		link: l, node: node, addr: addr, waiting: make(chan outgoing, maxWaiting),
		former: t.ended, ended: make(chan struct{}),
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	t.endpoint, t.ended = e, e.ended
	l.running.Go(e.run)
	return e, nil
}

// Down implements peer.Link. It ends the connection, unless a later incarnation has sent a
// batch.
func (l *Link) Down(node, incarnation uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.nodes[node]; t != nil && t.endpoint != nil && t.heard <= incarnation {
		t.endpoint.cancel(errRetired)
	}
}

// Close implements peer.Link. It ends all connections and fails the batches that were not
// sent. It waits for the functions set by Receive and Lost.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	for _, t := range l.nodes {
		if t.endpoint != nil {
			t.endpoint.cancel(errRetired)
		}
	}
	l.mu.Unlock()
	l.server.Stop()
	l.running.Wait()
	return nil
}

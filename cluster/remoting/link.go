package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/connlimit"
	"github.com/percolator-go/percolator/internal/wire"
)

// Errors of Send: the batch was surely not sent.
var (
	// ErrNoAddress: the node's address is not known.
	ErrNoAddress = errors.New("remoting: the node's address is not known")
	// ErrUnreachable: there is no connection to the node, and the last attempts have failed.
	ErrUnreachable = errors.New("remoting: the node cannot be reached")
	// ErrClosed: this node's remoting is closed.
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
	// 1024. Streams on further ones are refused.
	MaxConnections int
	// MaxPending is the most connections of others on which no stream has begun, such as in their
	// handshakes; default 512. One more closes another, see package connlimit.
	MaxPending int
	Logger     *slog.Logger
}

// Link is this node's end of the remoting.
//
// Send runs on its callers' goroutines and gives batches to the library's actors. One
// actor receives batches (take), one after the other. The mutex guards the fields below it
// and is not held while callbacks run.
type Link struct {
	cfg     Config
	system  *actor.ActorSystem
	remote  *remote.Remote
	guard   *guard
	limiter *connlimit.Limiter // of the connections that others open
	depth   *depth             // of the receiving actor's mailbox
	counts  counts

	receives chan struct{} // closed by the first Receive

	mu        sync.Mutex
	receive   func(*wire.PeerBatch)
	lost      func(node uint64)
	nodes     map[uint64]*target   // by node id
	endpoints map[string]*endpoint // the live ones, by their names in the library
	closed    bool
}

var _ peer.Link = (*Link)(nil)

// target is what is known of one other node, with or without a connection.
type target struct {
	endpoint   *endpoint // nil if there is none now
	generation uint64    // number of the last endpoint
	failures   int       // failed attempts since the last connection
	retryAt    time.Time // no attempt is made before
	why        string    // the last attempt failed, for the end of an error
	heard      uint64    // the newest incarnation that has sent a batch
}

// receiver is the name of the one actor that other nodes may send to.
const receiver = "peers"

// Open listens for other nodes. Their streams wait until Receive has been called.
// Connections to other nodes are made when there is something to send.
func Open(cfg Config) (*Link, error) {
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = 1024
	}
	if cfg.MaxPending <= 0 {
		cfg.MaxPending = 512
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	host, portText, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("remoting: %q is not a host:port", cfg.Listen)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("remoting: %q is not a port number", portText)
	}
	l := &Link{
		cfg: cfg, nodes: make(map[uint64]*target), endpoints: make(map[string]*endpoint),
		depth: newDepth(), limiter: newLimiter(cfg),
		receives: make(chan struct{}),
	}
	l.guard = &guard{counts: &l.counts, depth: l.depth, receives: l.receives, logger: cfg.Logger}
	// The library's own log is discarded: this package logs what matters.
	silent := slog.New(slog.DiscardHandler)
	l.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return silent
	}))
	l.system.EventStream.Subscribe(l.event)
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		host = "[" + host + "]" // the library joins host and port by a colon
	}
	l.remote = remote.NewRemote(l.system, l.options(host, int(port)))
	if err := l.start(); err != nil {
		return nil, err
	}
	props := actor.PropsFromFunc(l.take, actor.WithMailbox(actor.Unbounded(l.depth)))
	if _, err := l.system.Root.SpawnNamed(props, receiver); err != nil {
		return nil, errors.Join(fmt.Errorf("remoting: %w", err), l.Close())
	}
	return l, nil
}

// start starts the library. It returns the library's panic, when it cannot listen, as an
// error.
func (l *Link) start() (err error) {
	defer func() {
		if r := recover(); r != nil {
			l.system.Shutdown()
			err = fmt.Errorf("remoting: %v", r)
		}
	}()
	l.remote.Start()
	return nil
}

// Addr returns the address that the link listens on.
func (l *Link) Addr() string { return l.system.Address() }

// take is the receiving actor. Streams begin only after Receive was called, so that
// l.receive is set.
func (l *Link) take(c actor.Context) {
	b, ok := c.Message().(*wire.PeerBatch)
	if !ok {
		return
	}
	l.mu.Lock()
	receive := l.receive
	// Down needs it, so that it does not end a connection to a later incarnation.
	if t := l.nodes[b.GetFromNode()]; t != nil {
		t.heard = max(t.heard, b.GetFromIncarnation())
	}
	l.mu.Unlock()
	l.counts.received.Add(1)
	defer func() {
		// Without this the library would restart the actor, but only ten times.
		if r := recover(); r != nil {
			l.counts.panics.Add(1)
			l.cfg.Logger.Error("the handler of another node's batch panicked", "node", b.GetFromNode(),
				"panic", fmt.Sprint(r))
		}
	}()
	receive(b)
}

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
		return fmt.Errorf("%w: %d", ErrNoAddress, node)
	}
	e, err := l.endpoint(node, addr)
	if err != nil {
		return err
	}
	o := &outgoing{batch: b, endpoint: e, then: then}
	// The endpoint may have ended since it was found.
	if !e.add(o) {
		return fmt.Errorf("%w: node %d at %s", ErrUnreachable, node, addr)
	}
	// The library finds the endpoint's writer by the name in the PID. A message that it
	// cannot deliver comes back as a dead letter (event).
	l.system.Root.Send(e.pid, o)
	return nil
}

// Down implements peer.Link. It ends the connection, unless a later incarnation has sent a
// batch.
func (l *Link) Down(node, incarnation uint64) {
	l.mu.Lock()
	var e *endpoint
	if t := l.nodes[node]; t != nil && t.heard <= incarnation {
		e = t.endpoint
	}
	l.mu.Unlock()
	if e != nil {
		l.retire(e)
	}
}

// Close implements peer.Link. It ends all connections and the library's actors, and fails
// the batches that were not sent.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var live []*endpoint
	for _, e := range l.endpoints {
		live = append(live, e)
	}
	l.mu.Unlock()
	l.depth.close() // streams that wait for room go on and end
	for _, e := range live {
		l.retire(e)
	}
	// The library's graceful shutdown would wait up to ten seconds for other nodes.
	root := l.system.Root
	// First the supervisor with its children, the writers, so that nothing is sent while
	// the rest ends.
	supervisor := root.StopFuture(l.system.NewLocalPID("EndpointSupervisor")).Wait()
	l.remote.Shutdown(false)
	err := errors.Join(supervisor, root.StopFuture(l.system.NewLocalPID("activator")).Wait(),
		root.StopFuture(l.system.NewLocalPID(receiver)).Wait())
	l.system.Shutdown()
	return err
}

// retire ends an endpoint here and in the library.
func (l *Link) retire(e *endpoint) {
	l.ended(e, fmt.Errorf("%w: the connection was closed", ErrUnreachable))
	l.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: e.name})
}

// event handles what the library publishes, on the library's goroutines.
func (l *Link) event(event any) {
	switch m := event.(type) {
	case *remote.EndpointTerminatedEvent:
		if e := l.named(m.Address); e != nil {
			l.ended(e, ErrUnreachable)
		}
	// A batch was sent to an endpoint's actor that had stopped.
	case *actor.DeadLetterEvent:
		// Other dead letters are the library's own messages.
		if o, ok := m.Message.(*outgoing); ok {
			o.fail(ErrUnreachable)
		}
	}
}

// log logs an event of a connection.
func (l *Link) log(level slog.Level, text string, e *endpoint, attrs ...slog.Attr) {
	attrs = append(attrs, slog.Uint64("node", e.node), slog.String("addr", e.addr))
	l.cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

package rpc

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/percolator-go/percolator/internal/connlimit"
)

// Per-connection state. Accept runs on gRPC's goroutine of the listener; handlers find their
// connection through their context. A clientConn lives as long as its connection.

// conns is a listener that limits the number of connections and gives each its share of the
// server's memory. gRPC has no per-connection state and cannot close a connection, so handlers
// find the connection, and its memory, through its remote address.
type conns struct {
	net.Listener // the one that a connlimit.Limiter returned
	all          *semaphore.Weighted
	size         int64 // of all
	clients      *Clients
	counters     *serverCounters
}

// Accept implements net.Listener.
func (l conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.counters.accepted.Add(1)
	l.counters.connections.Add(1)
	conn := &clientConn{
		Conn: c.(*connlimit.Conn), memory: newMemory(l.all, l.size), counters: l.counters, clients: l.clients,
	}
	l.clients.add(conn)
	return conn, nil
}

// Limit applies the connection limits of a server with Guards to the listener: at most
// cfg.MaxPending connections that have made no call, and cfg.MaxConnections that have. In plain
// text one address may have at most half of cfg.MaxConnections. Server.Serve does the same.
func Limit(lis net.Listener, cfg ServerConfig) net.Listener {
	cfg = cfg.withDefaults()
	return conns{
		newLimiter(cfg).Listen(lis), semaphore.NewWeighted(cfg.Memory), cfg.Memory, cfg.Clients,
		&serverCounters{},
	}
}

func newLimiter(cfg ServerConfig) *connlimit.Limiter {
	bounds := connlimit.Config{Pending: cfg.MaxPending, Admitted: cfg.MaxConnections}
	if cfg.TLS == nil {
		bounds.Share = (cfg.MaxConnections + 1) / 2
	}
	return connlimit.New(bounds)
}

// admit counts the connection of a call as used, after its caller is authenticated. gRPC calls
// it for each call, before it reads the call's message and with the connection's mutex held;
// it must not block.
func (e *authInterceptor) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	c := connection(ctx)
	if c == nil { // the listener has no limits
		return ctx, nil
	}
	if _, err := callerOf(ctx, &e.cfg); err != nil {
		return nil, err
	}
	if err := c.Admit(); err != nil {
		return nil, toStatus(refusePlace(err))
	}
	return ctx, nil
}

// placeRetry is the time after which a client that was refused for lack of room may try again.
const placeRetry = 100 * time.Millisecond

// clientConn is one connection, with its share of the memory.
type clientConn struct {
	*connlimit.Conn
	memory   *memory
	counters *serverCounters
	closed   atomic.Bool

	clients   *Clients
	id        uint64
	connected time.Time
	caller    atomic.Pointer[Caller] // of the connection's first call; nil: it has made none
	use       use
}

// Close implements net.Conn. It may be called several times.
func (c *clientConn) Close() error {
	if !c.closed.Swap(true) {
		c.counters.connections.Add(-1)
		c.clients.drop(c)
	}
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn. The address carries the connection, see connection.
func (c *clientConn) RemoteAddr() net.Addr { return clientAddr{c.Conn.RemoteAddr(), c} }

// clientAddr is a remote address with a reference to its connection.
type clientAddr struct {
	net.Addr
	conn *clientConn
}

// connection returns the connection of the call, or nil if no listener of Limit, Listen or Serve
// has accepted it.
func connection(ctx context.Context) *clientConn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(clientAddr); ok {
			return a.conn
		}
	}
	return nil
}

// origin returns the remote host of the call, or "" if unknown.
func origin(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return hostOf(p.Addr.String())
	}
	return ""
}

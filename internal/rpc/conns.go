package rpc

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/connlimit"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file ties the state of a connection to the calls that come on it. Accept runs on
// gRPC's goroutine of the listener; handlers find their connection again through their
// context. A clientConn lives as long as its connection.

// conns is a listener that bounds the number of connections and gives each its share of the
// server's memory. gRPC keeps no state for a connection and cannot close one, so handlers find
// both by the connection's remote address.
type conns struct {
	net.Listener // of a connlimit.Limiter
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

// Limit returns the listener with the bounds of a server that has Guards: at most cfg.MaxPending
// connections that have made no call, and cfg.MaxConnections that have. In plain text one address has
// half of the latter at most. Server.Serve does the same.
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

// admit gives the connection of a call a place among those in use, once its caller is authenticated. gRPC
// calls it for each call, before the call's message is read and with the connection's mutex held; it does
// not block.
func (e *authInterceptor) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	c := connection(ctx)
	if c == nil { // of a listener without bounds
		return ctx, nil
	}
	if _, err := callerOf(ctx, &e.cfg); err != nil {
		return nil, err
	}
	if err := c.Admit(); err != nil {
		return nil, toStatus(&txn.ServerError{
			Code: pb.Error_CODE_OVERLOADED, Message: fmt.Sprintf("percolator: %v: ask another node", err),
			RetryAfter: placeRetry,
		})
	}
	return ctx, nil
}

// placeRetry is the time after which a refused client may try again.
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
	caller    atomic.Pointer[Caller] // of its first call; nil: there was none
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

// clientAddr is a remote address that leads back to its connection.
type clientAddr struct {
	net.Addr
	conn *clientConn
}

// connection returns the connection that the call came on, nil if Serve has not accepted
// it.
func connection(ctx context.Context) *clientConn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(clientAddr); ok {
			return a.conn
		}
	}
	return nil
}

// origin returns the host that the call comes from, "" if it is not known.
func origin(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
		return host
	}
	return p.Addr.String()
}

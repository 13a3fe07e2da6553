package rpc

import (
	"context"
	"net"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/peer"
)

// This file ties the state of a connection to the calls that come on it. Accept runs on
// gRPC's goroutine of the listener; handlers find their connection again through their
// context. A clientConn lives as long as its connection.

// conns is a listener that gives each connection its share of the server's memory. gRPC
// knows of no state of a connection and can't close one, so both are reached by the
// connection's remote address, which gRPC hands to handlers.
type conns struct {
	net.Listener
	all      *semaphore.Weighted
	size     int64 // of all
	counters *serverCounters
}

// Accept implements net.Listener.
func (l conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.counters.accepted.Add(1)
	l.counters.connections.Add(1)
	return &clientConn{Conn: c, memory: newMemory(l.all, l.size), counters: l.counters}, nil
}

// clientConn is one connection, with its share of the memory.
type clientConn struct {
	net.Conn
	memory   *memory
	counters *serverCounters
	closed   atomic.Bool
}

// Close implements net.Conn. It may be called several times.
func (c *clientConn) Close() error {
	if !c.closed.Swap(true) {
		c.counters.connections.Add(-1)
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

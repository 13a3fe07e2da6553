package rpc

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// conns is a listener whose connections can be closed by those that serve a stream on
// them: gRPC has no way to do so, and what it has taken to write to a client that does
// not read goes with the connection only.
type conns struct {
	net.Listener
	gone func(*clientConn) // is called when one is closed
}

// Accept implements net.Listener.
func (l conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConn{Conn: c, gone: l.gone}, nil
}

// clientConn is one connection. Its remote address, which gRPC hands to handlers, leads back to it.
type clientConn struct {
	net.Conn
	streams  atomic.Int32 // Operations that it carries
	gone     func(*clientConn)
	arrivals atomic.Pointer[arrivalConn] // what comes on it; nil: it has not shaken hands yet
	hanging  atomic.Bool                 // it is closed soon, for what it does not read of single calls
}

// Close implements net.Conn.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.gone(c)
	return err
}

// RemoteAddr implements net.Conn.
func (c *clientConn) RemoteAddr() net.Addr { return clientAddr{c.Conn.RemoteAddr(), c} }

type clientAddr struct {
	net.Addr
	conn *clientConn
}

// connection is the connection of the call; nil if it did not come through a listener of Serve.
func connection(ctx context.Context) *clientConn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(clientAddr); ok {
			return a.conn
		}
	}
	return nil
}

// maxOperationStreams bounds the Operations streams of one connection: a client needs
// one, and each takes memory for what it receives and has not done yet (streamWindow).
const maxOperationStreams = 16

// open counts a stream; false if there are too many. close takes it back.
func (c *clientConn) open() bool {
	if c == nil || c.streams.Add(1) <= maxOperationStreams {
		return true
	}
	c.streams.Add(-1)
	return false
}

// taken notes that a message of so many bytes that came on it has been taken.
func (c *clientConn) taken(bytes int) {
	if c != nil {
		c.arrivals.Load().taken(bytes)
	}
}

func (c *clientConn) close() {
	if c != nil {
		c.streams.Add(-1)
	}
}

// hangUp closes the connection in a while, so that the client may still learn why, and
// then calls after.
func (c *clientConn) hangUp(after func()) {
	if c == nil {
		after()
		return
	}
	time.AfterFunc(hangUpAfter, func() {
		_ = c.Close()
		after()
	})
}

const hangUpAfter = time.Second

// origin is the host that the call comes from.
func origin(ctx context.Context) string {
	addr := from(ctx)
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// from is where the call comes from, for the log.
func from(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

package remoting

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percolator-go/percolator/internal/certs"
)

// This file authenticates the connections that other nodes open and bounds their number.
// gRPC calls it on a goroutine for each connection. They share only the number of open
// connections, which is atomic and includes handshakes in progress.

// errTooMany closes connections beyond the bound.
var errTooMany = errors.New("remoting: too many connections")

// serverCredentials accept only nodes and bound the number of connections. The library
// opens its listener itself, so this is the first place that sees them.
type serverCredentials struct {
	credentials.TransportCredentials
	limit  int64
	open   *atomic.Int64
	counts *counts
}

// newServerCredentials returns the credentials of the server: TLS with the node's files,
// or plain text if files is nil.
func newServerCredentials(files *certs.Files, limit int,
	c *counts) credentials.TransportCredentials {
	inner := insecure.NewCredentials()
	if files != nil {
		inner = credentials.NewTLS(files.Server(certs.Node))
	}
	return &serverCredentials{
		TransportCredentials: inner, limit: int64(limit), open: new(atomic.Int64), counts: c,
	}
}

// ServerHandshake implements credentials.TransportCredentials.
func (s *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	// Counted before the handshake, so that slow handshakes are bounded as well.
	if s.open.Add(1) > s.limit {
		s.open.Add(-1)
		s.counts.handshakes.Add(1)
		return nil, nil, errTooMany // gRPC closes it
	}
	conn, info, err := s.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		s.open.Add(-1)
		s.counts.handshakes.Add(1)
		return nil, nil, err
	}
	// From here on countedConn.Close lowers the number.
	return &countedConn{Conn: conn, open: s.open}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (s *serverCredentials) Clone() credentials.TransportCredentials {
	c := *s
	c.TransportCredentials = s.TransportCredentials.Clone()
	return &c
}

// countedConn is an open connection. Its first Close lowers the number of open connections.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

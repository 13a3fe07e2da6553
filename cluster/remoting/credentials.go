package remoting

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percolator-go/percolator/internal/certs"
)

// This file authenticates the connections with other nodes, ends those of nodes whose
// certificates are revoked, and bounds the number of those that others open. gRPC calls it on a
// goroutine for each connection. They share only the number of open connections, which is
// atomic and includes handshakes in progress.

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
		inner = &nodeCredentials{credentials.NewTLS(files.Server(certs.Node)), files}
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

// newClientCredentials returns the credentials of connections to other nodes, plain text if
// files is nil.
func newClientCredentials(files *certs.Files) credentials.TransportCredentials {
	if files == nil {
		return insecure.NewCredentials()
	}
	return &nodeCredentials{credentials.NewTLS(files.Peer()), files}
}

// nodeCredentials are TLS whose connections end when the other node's certificate is revoked.
type nodeCredentials struct {
	credentials.TransportCredentials
	files *certs.Files
}

// ServerHandshake implements credentials.TransportCredentials.
func (n *nodeCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.watch(n.TransportCredentials.ServerHandshake(raw))
}

// ClientHandshake implements credentials.TransportCredentials.
func (n *nodeCredentials) ClientHandshake(ctx context.Context, authority string,
	raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.watch(n.TransportCredentials.ClientHandshake(ctx, authority, raw))
}

// Clone implements credentials.TransportCredentials.
func (n *nodeCredentials) Clone() credentials.TransportCredentials {
	return &nodeCredentials{n.TransportCredentials.Clone(), n.files}
}

func (n *nodeCredentials) watch(conn net.Conn, info credentials.AuthInfo,
	err error) (net.Conn, credentials.AuthInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	state := info.(credentials.TLSInfo).State
	return &watchedConn{Conn: conn, files: n.files, cert: state.PeerCertificates[0]}, info, nil
}

// watchedConn looks at the other node's certificate with everything that comes and goes. A
// changed list of revoked certificates is noticed within a second; from then on nothing is
// read or written. Keepalives make idle connections end too.
type watchedConn struct {
	net.Conn
	files *certs.Files
	cert  *x509.Certificate
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if revoked := c.check(); revoked != nil {
		return 0, revoked
	}
	return n, err
}

// Write implements net.Conn.
func (c *watchedConn) Write(p []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *watchedConn) check() error {
	if !c.files.Revoked(c.cert) {
		return nil
	}
	_ = c.Close() // what is in flight fails as if the node had gone
	return certs.ErrRevoked
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

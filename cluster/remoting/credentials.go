package remoting

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/connlimit"
)

// This file authenticates the connections with other nodes, ends those of nodes whose
// certificates are revoked, and bounds the number of those that others open. gRPC calls it on a
// goroutine for each connection. They share the limiter, which has a mutex.

// newLimiter returns the bounds of the connections that others open. In plain text one address has
// half of cfg.MaxConnections at most.
func newLimiter(cfg Config) *connlimit.Limiter {
	bounds := connlimit.Config{Pending: cfg.MaxPending, Admitted: cfg.MaxConnections}
	if cfg.Files == nil {
		bounds.Share = (cfg.MaxConnections + 1) / 2
	}
	return connlimit.New(bounds)
}

// serverCredentials accept only nodes, or in plain text everyone, and count failed handshakes.
type serverCredentials struct {
	credentials.TransportCredentials
	counts *counts
}

// newServerCredentials returns the credentials of the server: TLS with the node's files,
// or plain text if files is nil.
func newServerCredentials(files *certs.Files, c *counts) credentials.TransportCredentials {
	inner := insecure.NewCredentials()
	if files != nil {
		inner = &nodeCredentials{credentials.NewTLS(files.Server(certs.Node)), files, func(error) {}}
	}
	return &serverCredentials{TransportCredentials: inner, counts: c}
}

// ServerHandshake implements credentials.TransportCredentials.
func (s *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		s.counts.handshakes.Add(1)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (s *serverCredentials) Clone() credentials.TransportCredentials {
	c := *s
	c.TransportCredentials = s.TransportCredentials.Clone()
	return &c
}

// newClientCredentials returns the credentials of connections to other nodes, plain text if
// files is nil. refused is called with an error that wraps peer.ErrCertificates if one end refuses
// the other's certificate.
func newClientCredentials(files *certs.Files, refused func(error)) credentials.TransportCredentials {
	if files == nil {
		return insecure.NewCredentials()
	}
	return &nodeCredentials{credentials.NewTLS(files.Peer()), files, refused}
}

// nodeCredentials are TLS whose connections end when the other node's certificate is revoked.
type nodeCredentials struct {
	credentials.TransportCredentials
	files   *certs.Files
	refused func(error)
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
	return &nodeCredentials{n.TransportCredentials.Clone(), n.files, n.refused}
}

func (n *nodeCredentials) watch(conn net.Conn, info credentials.AuthInfo,
	err error) (net.Conn, credentials.AuthInfo, error) {
	if err != nil {
		n.check(err)
		return nil, nil, err
	}
	state := info.(credentials.TLSInfo).State
	return &watchedConn{Conn: conn, node: n, cert: state.PeerCertificates[0]}, info, nil
}

// check calls refused if err says that a certificate was refused: by this end, or by the other,
// whose alert package net wraps.
func (n *nodeCredentials) check(err error) {
	var here *tls.CertificateVerificationError
	var there *net.OpError
	if errors.As(err, &here) || errors.As(err, &there) && there.Op == "remote error" {
		n.refused(fmt.Errorf("%w: %w", peer.ErrCertificates, err))
	}
}

// watchedConn checks the other node's certificate on every read and write. A changed list of
// revoked certificates takes effect within a second; from then on nothing is read or written.
// Keepalives make idle connections end too.
type watchedConn struct {
	net.Conn
	node *nodeCredentials
	cert *x509.Certificate
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.node.check(err) // in TLS 1.3 a refusal comes after the handshake
	}
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
	if !c.node.files.Revoked(c.cert) {
		return nil
	}
	_ = c.Close() // what is in flight fails as if the node had gone
	return certs.ErrRevoked
}

// admit admits the connection of another node's call to the limiter, or rejects the call if
// MaxConnections are admitted. gRPC calls it for each call, before its message is read; it does not
// block.
func (l *Link) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	if c := connlimit.Of(p.Addr); c != nil {
		if err := c.Admit(); err != nil {
			l.counts.handshakes.Add(1)
			return nil, status.Errorf(codes.ResourceExhausted, "remoting: %v", err)
		}
	}
	return ctx, nil
}

package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/percolator-go/percolator/internal/certs"
)

// Reporting of the reason for which a server refuses a client's certificate. It wraps a
// connection, which gRPC reads on one goroutine and writes on another.

// clientCredentials are a client's TLS credentials. Each connection has the configuration of the
// time at which it is established, since certificate files may change while the client runs.
type clientCredentials struct {
	credentials.TransportCredentials
	config func() *tls.Config
}

func newClientCredentials(config func() *tls.Config) credentials.TransportCredentials {
	return &clientCredentials{
		TransportCredentials: credentials.NewTLS(config()), config: config,
	}
}

func newFileCredentials(files *certs.Files) credentials.TransportCredentials {
	return newClientCredentials(files.Client)
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string,
	conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := credentials.NewTLS(c.config()).ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	return &refusable{Conn: secure}, info, nil
}

// refusable is a connection whose server may still refuse the certificate: in TLS 1.3 the
// client's handshake ends before the server verifies it. A refusing server sends an alert and
// closes the connection. A client that writes then gets only the second ("broken pipe"),
// although the alert is still unread.
type refusable struct {
	net.Conn
	served atomic.Bool // something was read: the server has accepted the client
}

// reasonWithin is the timeout of reading the alert, which was sent before the connection
// broke.
const reasonWithin = 100 * time.Millisecond

// Read implements net.Conn.
func (c *refusable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.served.Load() {
		c.served.Store(true)
	}
	return n, err
}

// Write implements net.Conn. It returns the server's alert as the error, if there is one.
func (c *refusable) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	// After a successful read the server has accepted the certificate, and the error has
	// another cause.
	if err == nil || c.served.Load() {
		return n, err
	}
	// The connection is broken, so a deadline for all its readers is harmless.
	if late := c.SetReadDeadline(time.Now().Add(reasonWithin)); late != nil {
		return n, err
	}
	var reason *net.OpError // crypto/tls's error for an alert
	if _, why := c.Conn.Read(make([]byte, 1)); errors.As(why, &reason) &&
		reason.Op == "remote error" {
		return n, why
	}
	return n, err
}

// Clone implements credentials.TransportCredentials.
func (c *clientCredentials) Clone() credentials.TransportCredentials {
	return newClientCredentials(c.config)
}

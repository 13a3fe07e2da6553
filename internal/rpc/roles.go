package rpc

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/percolator-go/percolator/internal/certs"
)

// This file lets clients hear why a server refuses their certificates. It wraps a
// connection, which gRPC reads on one goroutine and writes on another.

// fileCredentials are the TLS credentials of a client whose files may change while it
// runs. Each connection uses them as they are when it is made.
type fileCredentials struct {
	credentials.TransportCredentials
	files *certs.Files
}

func newFileCredentials(files *certs.Files) credentials.TransportCredentials {
	return &fileCredentials{TransportCredentials: credentials.NewTLS(files.Client()), files: files}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string,
	conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := credentials.NewTLS(c.files.Client()).ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	return &refusable{Conn: secure}, info, nil
}

// refusable is a connection whose server may still refuse the certificate: in TLS 1.3 the
// client has shaken hands before the server has looked at it. A server that refuses says
// why and hangs up; a client that writes then hears of the second only ("broken pipe"),
// while the reason is still to be read.
type refusable struct {
	net.Conn
	served atomic.Bool // something was read: the server has let the client in
}

// reasonWithin bounds the wait for a reason, which was sent before the connection broke.
const reasonWithin = 100 * time.Millisecond

// Read implements net.Conn.
func (c *refusable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.served.Load() {
		c.served.Store(true)
	}
	return n, err
}

// Write implements net.Conn. Its error is the server's reason, if it has given one.
func (c *refusable) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	// Once anything was read, the server has accepted the certificate, and the error is
	// about something else.
	if err == nil || c.served.Load() {
		return n, err
	}
	// The connection is of no more use, so a deadline for all that read from it does no
	// harm.
	if late := c.SetReadDeadline(time.Now().Add(reasonWithin)); late != nil {
		return n, err
	}
	var reason *net.OpError // what crypto/tls makes of an alert
	if _, why := c.Conn.Read(make([]byte, 1)); errors.As(why, &reason) &&
		reason.Op == "remote error" {
		return n, why
	}
	return n, err
}

// Clone implements credentials.TransportCredentials.
func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return newFileCredentials(c.files)
}

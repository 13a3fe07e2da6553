package rpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
)

// This file tells callers apart by their certificates, and lets clients hear why a server
// refuses theirs. The server's half runs in front of every handler; the client's half
// wraps a connection, which gRPC reads on one goroutine and writes on another.

// The methods of the two services begin with these.
var (
	percolatorMethods = "/" + pb.Percolator_ServiceDesc.ServiceName + "/"
	adminMethods      = "/" + pb.Admin_ServiceDesc.ServiceName + "/"
)

// public reports whether clients may call the method. What ServerConfig.Register adds is
// for nodes.
func public(method string) bool {
	return strings.HasPrefix(method, percolatorMethods) || strings.HasPrefix(method, adminMethods)
}

// permit returns why the caller may not call the method, nil if it may. In clear text
// everybody is everything, which is why that needs to be asked for.
func permit(ctx context.Context, cfg *ServerConfig, method string) error {
	if cfg.TLS == nil || public(method) {
		// Whoever has shaken hands is at least a client; the TLS configuration has seen to it.
		return nil
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.Unauthenticated, "percolator: no certificate")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return status.Error(codes.Unauthenticated, "percolator: no certificate")
	}
	if role, name := certs.Identity(info.State.PeerCertificates[0]); role != certs.Node {
		cfg.Logger.Warn("call refused: not a node", "method", method, "role", role, "name", name,
			"from", p.Addr)
		return status.Errorf(codes.PermissionDenied,
			"percolator: %s is for nodes, and the certificate of %q is not a node's", method, name)
	}
	return nil
}

// permitUnary puts permit in front of unary calls.
func permitUnary(cfg ServerConfig) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		if err := permit(ctx, &cfg, info.FullMethod); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// permitStream puts permit in front of streams.
func permitStream(cfg ServerConfig) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		handler grpc.StreamHandler) error {
		if err := permit(stream.Context(), &cfg, info.FullMethod); err != nil {
			return err
		}
		return handler(srv, stream)
	}
}

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

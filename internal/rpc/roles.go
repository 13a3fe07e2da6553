package rpc

import (
	"context"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
)

// public tells the methods that clients may call; what ServerConfig.Register adds is for nodes.
func public(method string) bool {
	return strings.HasPrefix(method, "/"+pb.Percolator_ServiceDesc.ServiceName+"/")
}

// permit decides by the caller's certificate. In clear text everybody is everything, which is why that needs to be asked for.
func permit(ctx context.Context, cfg *ServerConfig, method string) error {
	if cfg.TLS == nil || public(method) {
		return nil // who has shaken hands is a client at least: the TLS configuration decides who may
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
		cfg.Logger.Warn("call refused: not a node", "method", method, "role", role, "name", name, "from", p.Addr)
		return status.Errorf(codes.PermissionDenied, "percolator: %s is for nodes, and the certificate of %q is not a node's", method, name)
	}
	return nil
}

func permitUnary(cfg ServerConfig) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := permit(ctx, &cfg, info.FullMethod); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

func permitStream(cfg ServerConfig) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := permit(stream.Context(), &cfg, info.FullMethod); err != nil {
			return err
		}
		return handler(srv, stream)
	}
}

// fileCredentials are TLS credentials of a client whose files may change while it runs: each connection uses them as they
// are then.
type fileCredentials struct {
	credentials.TransportCredentials
	files *certs.Files
}

func newFileCredentials(files *certs.Files) credentials.TransportCredentials {
	return &fileCredentials{TransportCredentials: credentials.NewTLS(files.Client()), files: files}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.files.Client()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return newFileCredentials(c.files)
}

package join

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// GRPCContact is a Contact over gRPC. It keeps one connection per address, created at the first
// use. Enter, Seek and Upkeep call it on their goroutines, for several addresses concurrently;
// only the context limits the duration of a call.
type GRPCContact struct {
	creds credentials.TransportCredentials

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // by address
}

var _ Contact = (*GRPCContact)(nil)

// NewGRPCContact returns a GRPCContact with the credentials of a node.
func NewGRPCContact(creds credentials.TransportCredentials) *GRPCContact {
	return &GRPCContact{creds: creds, conns: map[string]*grpc.ClientConn{}}
}

// maxConns limits the kept connections. When another one is needed all are closed and reopened on
// use, so that unreachable addresses do not accumulate.
const maxConns = 128

// client returns a client over the connection to addr without waiting for it to be established.
func (c *GRPCContact) client(addr string) (pb.MembershipClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.conns[addr]; conn != nil {
		return pb.NewMembershipClient(conn), nil
	}
	if len(c.conns) >= maxConns {
		if err := c.closeAll(); err != nil {
			return nil, err
		}
	}
	// A node must be reached soon after it starts; gRPC's default backoff grows to two minutes.
	retry := grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second,
		},
		MinConnectTimeout: callTimeout, // otherwise a handshake is limited to the preceding backoff
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(c.creds),
		grpc.WithConnectParams(retry), grpc.WithNoProxy()) // nodes are reached directly, regardless of HTTPS_PROXY
	if err != nil {
		return nil, fmt.Errorf("join: reach %s: %w", addr, err)
	}
	c.conns[addr] = conn
	return pb.NewMembershipClient(conn), nil
}

// Hello implements Contact.
func (c *GRPCContact) Hello(ctx context.Context, addr string,
	req *pb.HelloRequest) (*pb.HelloResponse, error) {
	m, err := c.client(addr)
	if err != nil {
		return nil, err
	}
	return m.Hello(ctx, req)
}

// Join implements Contact.
func (c *GRPCContact) Join(ctx context.Context, addr string,
	req *pb.JoinRequest) (*pb.JoinResponse, error) {
	m, err := c.client(addr)
	if err != nil {
		return nil, err
	}
	return m.Join(ctx, req)
}

// Found implements Contact.
func (c *GRPCContact) Found(ctx context.Context, addr string,
	req *pb.FoundRequest) (*pb.FoundResponse, error) {
	m, err := c.client(addr)
	if err != nil {
		return nil, err
	}
	return m.Found(ctx, req)
}

// Close closes the connections. A later call opens new ones.
func (c *GRPCContact) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeAll()
}

// closeAll closes the connections. The caller holds mu.
func (c *GRPCContact) closeAll() error {
	var errs []error
	for addr, conn := range c.conns {
		errs = append(errs, conn.Close())
		delete(c.conns, addr)
	}
	return errors.Join(errs...)
}

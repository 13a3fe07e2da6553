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

// GRPCContact is a Contact over gRPC. It keeps one connection per address, made at the
// first use. Enter, Seek and Upkeep call it on their goroutines, for several addresses at
// once; a call is bounded by its context alone.
type GRPCContact struct {
	creds credentials.TransportCredentials

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // by address
}

var _ Contact = (*GRPCContact)(nil)

// NewGRPCContact returns a GRPCContact that shows the credentials of a node.
func NewGRPCContact(creds credentials.TransportCredentials) *GRPCContact {
	return &GRPCContact{creds: creds, conns: map[string]*grpc.ClientConn{}}
}

// maxConns bounds the connections that are kept. When one more is needed all are closed
// and made anew: addresses that nobody answers at would stay otherwise.
const maxConns = 128

// client returns a client over the connection to addr. It does not wait until that is
// made.
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
	// A node that is waited for must be found soon after it has come: gRPC's own pauses
	// grow to two minutes.
	retry := grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second,
		},
		MinConnectTimeout: callTimeout, // without it a handshake has only the pause before it
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(c.creds),
		grpc.WithConnectParams(retry), grpc.WithNoProxy()) // nodes are reached directly, whatever HTTPS_PROXY says
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

// Close ends the connections. A later call makes new ones.
func (c *GRPCContact) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeAll()
}

// closeAll ends the connections. The caller holds mu.
func (c *GRPCContact) closeAll() error {
	var errs []error
	for addr, conn := range c.conns {
		errs = append(errs, conn.Close())
		delete(c.conns, addr)
	}
	return errors.Join(errs...)
}

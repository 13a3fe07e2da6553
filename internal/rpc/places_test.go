package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// clientHello is the beginning of a TLS handshake without the rest.
var clientHello = []byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}

// halfOpen opens connections that send some bytes and then nothing. They stay open until the test
// ends.
func halfOpen(t *testing.T, addr string, count int, hello []byte) {
	t.Helper()
	for range count {
		conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = conn.Write(hello) // it may be closed already
	}
}

// TestPlacesAreForTheAuthenticated: with any number of unfinished handshakes, a client with a
// certificate connects at once, and connected clients stay.
func TestPlacesAreForTheAuthenticated(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	addr := securedWith(t, dir, ServerConfig{MaxConnections: 4, MaxPending: 16})
	connect := func() (*Client, error) {
		cfg := in(dir)
		cfg.DialTimeout = connectTimeout
		return Dial(t.Context(), []string{addr}, cfg)
	}
	before, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }()
	halfOpen(t, addr, 300, clientHello)
	began := time.Now()
	after, err := connect()
	if err != nil {
		t.Fatalf("PLACES: a client with a certificate is not served: %v", err)
	}
	defer func() { _ = after.Close() }()
	// no later than the first unfinished handshake ends
	if took := time.Since(began); took >= connectTimeout {
		t.Errorf("a client with a certificate waited for %v", took)
	}
	if _, err := before.NodeStatus(t.Context()); err != nil {
		t.Errorf("a client that was connected before: %v", err)
	}
}

// listening serves in plain text until the test ends.
func listening(t *testing.T, cfg ServerConfig) (addr string) {
	t.Helper()
	cluster := txntest.New()
	cluster.AddTable("t")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(cluster.Process(1, 1), cfg)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(wg.Wait)
	t.Cleanup(server.Stop)
	return lis.Addr().String()
}

// TestSharesInPlainText: without authentication one address has half of the places. A call without
// a place is surely not done, and is done once there is one.
func TestSharesInPlainText(t *testing.T) {
	addr := listening(t, ServerConfig{MaxConnections: 4, MaxPending: 16})
	halfOpen(t, addr, 100, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	connect := func(from string) *grpc.ClientConn {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				return d.DialContext(ctx, "tcp", addr)
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	ask := func(conn *grpc.ClientConn) error {
		_, err := pb.NewPercolatorClient(conn).NodeStatus(t.Context(), &pb.NodeStatusRequest{},
			grpc.WaitForReady(true))
		return err
	}
	first := connect("127.0.0.1")
	for _, conn := range []*grpc.ClientConn{first, connect("127.0.0.1"), connect("127.0.0.2")} {
		if err := ask(conn); err != nil {
			t.Fatal(err)
		}
	}
	third := connect("127.0.0.1")
	if err := ask(third); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one address has more than half of the places: %v", err)
	}
	l := newLink(connect("127.0.0.1"), addr, true, ClientConfig{})
	if _, _, err := l.send(t.Context(), anything()); !errors.Is(err, txn.ErrNotSent) {
		t.Errorf("an operation for which there is no place: %v", err)
	}
	if err := errors.Join(l.close(), first.Close()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	// The server notices the end of the connection with a delay.
	for err := ask(third); err != nil; err = ask(third) {
		if txn.Sleep(ctx, 10*time.Millisecond) != nil {
			t.Fatalf("no place was released: %v", err)
		}
	}
}

// TestDialWaitsForAPlace: a client without a place connects once there is one.
func TestDialWaitsForAPlace(t *testing.T) {
	addr := listening(t, ServerConfig{MaxConnections: 1})
	cfg := ClientConfig{Insecure: true, DialTimeout: 10 * time.Second}
	first, err := Dial(t.Context(), []string{addr}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DialTimeout = 300 * time.Millisecond
	if _, err := Dial(t.Context(), []string{addr}, cfg); !errors.Is(err, txn.ErrUnavailable) {
		t.Errorf("one client too many: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	cfg.DialTimeout = 10 * time.Second
	second, err := Dial(t.Context(), []string{addr}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

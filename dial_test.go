package percolator_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestDial uses a DB over the network, whose first address refuses connections.
func TestDial(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(txntest.New().Process(1, 1), rpc.ServerConfig{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(lis); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer server.Stop()
	db, err := percolator.Dial(ctx, []string{"127.0.0.1:1", lis.Addr().String()},
		percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t",
		SplitKeys: []string{"m"}}); err != nil {
		t.Fatal(err)
	}
	put(ctx, t, db, "a", "z")
	if err := db.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	own := &tls.Config{MinVersion: tls.VersionTLS13}
	for name, cfg := range map[string]percolator.ClientConfig{
		"neither Insecure nor certificates": {},
		"Insecure and TLS":                  {Insecure: true, TLS: own},
		"files and TLS":                     {CAFile: "ca.crt", TLS: own},
	} {
		if _, err := percolator.Dial(ctx, []string{"x"}, cfg); !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// A refusal of the client by a node is found by errors.Is, and has advice.
func TestDialRefused(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.PermissionDenied, "rpc: no role")
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	defer serving.Wait()
	defer server.Stop()
	_, err = percolator.Dial(t.Context(), []string{lis.Addr().String()}, percolator.ClientConfig{Insecure: true})
	if !errors.Is(err, percolator.ErrPermission) || percolator.Advice(err) == "" {
		t.Errorf("Dial: %v (advice %q), want ErrPermission with advice", err, percolator.Advice(err))
	}
}

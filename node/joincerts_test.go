package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/gossip"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/node"
)

// TestWaitingNodeWithCertificates: a client with a certificate learns that the node does not serve
// yet, not that its certificate is invalid; the calls for joining stay refused.
func TestWaitingNodeWithCertificates(t *testing.T) {
	t.Parallel()
	dir, listen := certstest.Folder(t, "127.0.0.1"), freeAddr(t)
	ctx, cancel := context.WithCancel(context.Background())
	j, ended := &joiner{t, memlink.NewNetwork()}, make(chan error, 1)
	go func() {
		_, err := j.open(ctx, t.TempDir(), func(c *node.Config) {
			c.Certs, c.Insecure, c.Listen, c.Join, c.Expect = dir, false, listen, []string{listen},
				3
			c.Peer, c.Gossip = "127.0.0.1:0", "127.0.0.1:0"
		})
		ended <- err
	}()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}()
	file := func(name string) string { return filepath.Join(dir, name) }
	files, err := certs.Open(certs.Source{
		CA: file(certs.CACert), Cert: file(certs.ClientCert), Key: file(certs.ClientKey),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(listen,
		grpc.WithTransportCredentials(credentials.NewTLS(files.Client())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	asking, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	_, err = pb.NewMembershipClient(conn).Hello(asking, &pb.HelloRequest{NodeId: 7},
		grpc.WaitForReady(true))
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a client at the door: %v", err)
	}
	learnsOfWaiting(asking, t, listen, percolator.ClientConfig{
		CAFile: file(certs.CACert), CertFile: file(certs.ClientCert),
		KeyFile: file(certs.ClientKey),
	})
	if conn.GetState() == connectivity.Ready &&
		!conn.WaitForStateChange(asking, connectivity.Ready) {
		t.Error("a connection that asks nothing keeps others out")
	}
}

// TestGossipKeysAreLookedAtFirst: without gossip keys Open fails before it creates the data
// directory.
func TestGossipKeysAreLookedAtFirst(t *testing.T) {
	dir, data := certstest.Folder(t, "127.0.0.1"), filepath.Join(t.TempDir(), "data")
	if err := os.Remove(filepath.Join(dir, certs.GossipKeys)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Certs, cfg.Join = data, "127.0.0.1:0", "", dir,
		[]string{freeAddr(t)}
	if n, err := node.Open(ctx, cfg); !errors.Is(err, gossip.ErrKeys) {
		t.Fatalf("%v, %v", n, err)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}

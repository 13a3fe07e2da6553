package node_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/node"
)

// joiner opens nodes that join by the real door and gossip; only what nodes send each other later goes through memory.
type joiner struct {
	t       *testing.T
	network *memlink.Network
}

func (j *joiner) open(ctx context.Context, dir string, change func(c *node.Config)) (*node.Node, error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	if change != nil {
		change(&cfg)
	}
	return node.OpenWith(ctx, cfg, node.Parts{
		Link: func(self peer.Self) (peer.Link, error) { return j.network.Link(self.NodeID), nil },
	})
}

func (j *joiner) must(dir string, join ...string) *node.Node {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := j.open(ctx, dir, func(c *node.Config) { c.Join = join })
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { j.close(n) })
	return n
}

func (j *joiner) close(n *node.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		j.t.Error(err)
	}
}

// TestJoin: a second node joins over the network and is seen by the first; it comes back as its next incarnation; a copy of its
// directory and a node of another cluster are refused.
func TestJoin(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	j := &joiner{t, memlink.NewNetwork()}
	dirs := t.TempDir()
	a := j.must(filepath.Join(dirs, "a"))
	b := j.must(filepath.Join(dirs, "b"), a.Addr())
	if a.Status().ClusterId != b.Status().ClusterId || a.Status().NodeId == b.Status().NodeId {
		t.Fatalf("%v and %v", a.Status(), b.Status())
	}
	awaitNodes(ctx, t, a, b.Status().NodeId, b.Status().Incarnation)
	awaitNodes(ctx, t, b, a.Status().NodeId, a.Status().Incarnation)

	other := j.must(filepath.Join(dirs, "other"))
	stray, err := j.open(ctx, filepath.Join(dirs, "stray"), func(c *node.Config) { c.Join = []string{a.Addr(), other.Addr()} })
	if !errors.Is(err, cluster.ErrOtherCluster) {
		t.Errorf("two clusters in --join: %v, %v", stray, err)
	}
	j.close(other)
	if _, err := j.open(ctx, filepath.Join(dirs, "other"), func(c *node.Config) { c.Join = []string{a.Addr()} }); !errors.Is(err, cluster.ErrOtherCluster) {
		t.Errorf("a directory of another cluster: %v", err)
	}

	was := b.Status()
	j.close(b)
	b = j.must(filepath.Join(dirs, "b")) // by what it knows
	if now := b.Status(); now.NodeId != was.NodeId || now.Incarnation <= was.Incarnation {
		t.Errorf("came back as %v", now)
	}
	awaitNodes(ctx, t, a, was.NodeId, was.Incarnation+1)
}

// awaitNodes waits until n knows the node as alive and registered.
func awaitNodes(ctx context.Context, t *testing.T, n *node.Node, id, incarnation uint64) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := n.DB().Client().Transport().Nodes(ctx, &pb.NodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(r.Nodes, func(n *pb.Node) bool {
			return n.NodeId == id && n.Incarnation == incarnation && n.Alive && n.State == pb.NodeState_NODE_STATE_ACTIVE
		}) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("node %d does not come: %v", id, r.Nodes)
		case <-tick.C:
		}
	}
}

// TestWaitingNode: a node that waits to join says who it is at its address, and on HTTP that it lives and does not serve; it
// ends at once when it is told to.
func TestWaitingNode(t *testing.T) {
	listen, web := freeAddr(t), freeAddr(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	j, ended := &joiner{t, memlink.NewNetwork()}, make(chan error, 1)
	go func() {
		_, err := j.open(ctx, t.TempDir(), func(c *node.Config) {
			c.Listen, c.HTTP, c.Join, c.Expect = listen, web, []string{listen}, 3
			c.Peer, c.Gossip = "127.0.0.1:0", "127.0.0.1:0"
		})
		ended <- err
	}()
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	asking, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	door := pb.NewMembershipClient(conn)
	r, err := door.Hello(asking, &pb.HelloRequest{NodeId: 7, Addresses: &pb.NodeAddresses{Listen: "127.0.0.1:1"}}, grpc.WaitForReady(true))
	if err != nil || r.ClusterId != "" || r.NodeId == 0 || r.Expect != 3 || r.Addresses.GetListen() != listen || len(r.Fresh) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	for path, want := range map[string]string{"/livez": "200", "/readyz": "503", "/metrics": "200", "/api/v1/status": "200", "/": "200"} {
		if got := get(t, "http://"+web+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	began := time.Now()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("ended after %v", took)
	}
}

// freeAddr is an address that nobody had a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.Status + " " + string(text)
}

package node_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/node"
)

// joiner opens nodes that join through real listeners and gossip; only their later messages go
// through memory.
type joiner struct {
	t       *testing.T
	network *memlink.Network
}

func (j *joiner) open(ctx context.Context, dir string,
	change func(c *node.Config)) (*node.Node, error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	if change != nil {
		change(&cfg)
	}
	return nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{
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

// refused requires that a node with this directory and these addresses is refused as a member of
// another cluster. An address that does not answer within 2 s counts as away, also on a busy
// machine; then the node starts, and is refused at another attempt.
func (j *joiner) refused(ctx context.Context, what, dir string, addrs ...string) {
	j.t.Helper()
	for range 5 {
		n, err := j.open(ctx, dir, func(c *node.Config) { c.Join = addrs })
		if errors.Is(err, join.ErrOtherCluster) {
			return
		}
		if err != nil {
			j.t.Fatalf("%s: %v", what, err)
		}
		j.close(n)
	}
	j.t.Errorf("%s: accepted", what)
}

// TestJoin: a second node joins over the network and is seen by the first; it returns as its next
// incarnation. A new node given addresses of two clusters is refused, and so is a node of another
// cluster.
func TestJoin(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	j := &joiner{t, memlink.NewNetwork()}
	dirs := t.TempDir()
	a := j.must(filepath.Join(dirs, "a"))
	b := j.must(filepath.Join(dirs, "b"), a.Addr())
	if a.Status().ClusterId != b.Status().ClusterId || a.Status().NodeId == b.Status().NodeId {
		t.Fatalf("the nodes are %v and %v, want one cluster and two ids", a.Status(), b.Status())
	}
	awaitNodes(ctx, t, a, b.Status().NodeId, b.Status().Incarnation)
	awaitNodes(ctx, t, b, a.Status().NodeId, a.Status().Incarnation)

	other := j.must(filepath.Join(dirs, "other"))
	j.refused(ctx, "two clusters in --join", filepath.Join(dirs, "stray"), a.Addr(), other.Addr())
	j.close(other)
	j.refused(ctx, "a directory of another cluster", filepath.Join(dirs, "other"), a.Addr())

	was := b.Status()
	j.close(b)
	b = j.must(filepath.Join(dirs, "b")) // its directory names the cluster's nodes
	if now := b.Status(); now.NodeId != was.NodeId || now.Incarnation <= was.Incarnation {
		t.Errorf("came back as %v", now)
	}
	awaitNodes(ctx, t, a, was.NodeId, was.Incarnation+1)
}

// awaitNodes waits until n lists the node as alive, in this incarnation.
func awaitNodes(ctx context.Context, t *testing.T, n *node.Node, id, incarnation uint64) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := handle.Client(n.DB()).Admin().Nodes(ctx, &pb.NodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(r.Nodes, func(n *pb.Node) bool {
			return n.NodeId == id && n.Incarnation == incarnation && n.Alive &&
				n.State == pb.NodeState_NODE_STATE_ACTIVE
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

// memberships is a network of memberships in memory.
type memberships struct {
	mu sync.Mutex
	at map[string]pb.MembershipServer
}

var errNobody = status.Error(codes.Unavailable, "nobody is there")

func (d *memberships) find(addr string) pb.MembershipServer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[addr]
}

func (d *memberships) Hello(ctx context.Context, addr string,
	req *pb.HelloRequest) (*pb.HelloResponse, error) {
	if m := d.find(addr); m != nil {
		return m.Hello(ctx, req)
	}
	return nil, errNobody
}

func (d *memberships) Join(ctx context.Context, addr string,
	req *pb.JoinRequest) (*pb.JoinResponse, error) {
	if m := d.find(addr); m != nil {
		return m.Join(ctx, req)
	}
	return nil, errNobody
}

func (d *memberships) Found(ctx context.Context, addr string,
	req *pb.FoundRequest) (*pb.FoundResponse, error) {
	if m := d.find(addr); m != nil {
		return m.Found(ctx, req)
	}
	return nil, errNobody
}

// TestExpectWithoutListeners: three nodes found a cluster together through nodeparts.Parts.Contact
// without a listener.
func TestExpectWithoutListeners(t *testing.T) {
	network, members, at := memlink.NewNetwork(), newHub(),
		&memberships{at: map[string]pb.MembershipServer{}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addrs := []string{"a:1", "b:1", "c:1"}
	nodes, errs := make([]*node.Node, 3), make([]error, 3)
	var all sync.WaitGroup
	for i, addr := range addrs {
		all.Go(func() {
			cfg := node.DefaultConfig()
			cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.InsecureForce, cfg.Store.InMemory = addr, "",
				true, true, true
			cfg.Join, cfg.Expect = addrs, 3
			nodes[i], errs[i] = nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{
				Link: func(self peer.Self) (peer.Link, error) {
					return network.Link(self.NodeID), nil
				},
				Members: func(self cluster.Member) (cluster.Members, error) {
					return members.join(self), nil
				},
				Contact: func(listen string, door pb.MembershipServer) join.Contact {
					at.mu.Lock()
					defer at.mu.Unlock()
					at.at[listen] = door
					return at
				},
			})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	clusters := map[string]bool{}
	for _, n := range nodes {
		if n != nil {
			clusters[n.Status().ClusterId] = true
			t.Cleanup(func() {
				if err := n.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if len(clusters) != 1 {
		t.Errorf("the nodes are in %d clusters", len(clusters))
	}
	for _, n := range nodes {
		if n == nil {
			continue
		}
		if r, err := handle.Client(n.DB()).Admin().Nodes(ctx, &pb.NodesRequest{}); err != nil ||
			len(r.Nodes) != 3 {
			t.Errorf("the nodes are %v, %v, want 3", r, err)
		}
	}
}

// TestWaitingNode: a node that waits to join identifies itself at its address, and reports over
// HTTP that it lives and does not serve; clients skip it; it ends on request.
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
	asking, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	door := pb.NewMembershipClient(conn)
	r, err := door.Hello(asking, &pb.HelloRequest{
		NodeId: 7, Addresses: &pb.NodeAddresses{Listen: "127.0.0.1:1"},
	}, grpc.WaitForReady(true))
	if err != nil || r.ClusterId != "" || r.NodeId == 0 || r.Expect != 3 ||
		r.Addresses.GetListen() != listen || len(r.Fresh) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	for path, want := range map[string]string{"/livez": "200", "/readyz": "503", "/metrics": "200",
		"/api/v1/status": "200", "/": "200"} {
		if got := get(t, "http://"+web+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	waitingIsPassedOver(asking, t, listen)
	began := time.Now()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("ended after %v", took)
	}
}

// waitingIsPassedOver: a client given a waiting and a serving node uses the second; a client given
// only the first gets an error saying that it may serve later.
func waitingIsPassedOver(ctx context.Context, t *testing.T, waiting string) {
	t.Helper()
	cfg := percolator.ClientConfig{Insecure: true}
	learnsOfWaiting(ctx, t, waiting, cfg)
	serving := open(t, t.TempDir(), func(c *node.Config) { c.Listen = "127.0.0.1:0" })
	db, err := percolator.Dial(ctx, []string{waiting, serving.Addr()}, cfg)
	if err != nil {
		t.Errorf("the node that serves was not asked: %v", err)
		return
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Tables(ctx); err != nil {
		t.Errorf("the node that serves does not answer: %v", err)
	}
}

// learnsOfWaiting waits until a client given only a waiting node gets an error saying that the node
// may serve later.
func learnsOfWaiting(ctx context.Context, t *testing.T, waiting string,
	cfg percolator.ClientConfig) {
	t.Helper()
	limit := 250 * time.Millisecond
	awaitTrue(ctx, t, "a client learns that the node waits", func() bool {
		limit = min(2*limit, 10*time.Second) // a handshake may need long on a busy machine
		short, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := percolator.Dial(short, []string{waiting}, cfg)
		if !errors.Is(err, percolator.ErrUnavailable) {
			t.Fatalf("of a node that does not serve yet: %v", err)
		}
		return strings.Contains(err.Error(), "waiting to join a cluster")
	})
}

// freeAddr returns an address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second,
	}
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

package node_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// fetch returns the answer of the node's HTTP listener.
func fetch(ctx context.Context, t *testing.T, n *node.Node, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTPAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// series returns the exported values by name and labels.
func series(ctx context.Context, t *testing.T, n *node.Node) map[string]float64 {
	t.Helper()
	_, body := fetch(ctx, t, n, "/metrics")
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil &&
			strings.HasPrefix(name, "percolator_") {
			out[name] = v
		}
	}
	return out
}

// TestAnswersWithoutQuorum: a node without any quorum answers from its own knowledge with its age,
// is not ready, leads nothing, and continues to export every series.
func TestAnswersWithoutQuorum(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	defer http.DefaultClient.CloseIdleConnections()
	o := watch()
	r := three(ctx, t, 1, func(i int, c *node.Config) {
		c.HTTP, c.Observers = "127.0.0.1:0", o.register
	})
	r.lead(ctx, 1, 0) // this one exports placement's metrics
	left, transport := r.nodes[0], handle.Client(r.nodes[0].DB()).Transport()
	var before map[string]float64
	awaitTrue(ctx, t, "the figures of observers and placement", func() bool {
		before = series(ctx, t, left)
		_, observers := before[`percolator_observer_pending{observer="watcher"}`]
		_, placement := before["percolator_placement_target_replicas"]
		return observers && placement && before["percolator_meta_up"] == 1 &&
			before["percolator_tablets_leaderless"] == 0
	})
	if code, body := fetch(ctx, t, left, "/readyz"); code != http.StatusOK {
		t.Fatalf("readyz answers %d %s, want 200", code, body)
	}
	if nodes, err := handle.Client(left.DB()).Admin().Nodes(ctx,
		&pb.NodesRequest{Leaders: true}); err != nil || nodes.Unavailable != "" ||
		len(nodes.Nodes) != 3 || len(nodes.Leaders) == 0 {
		t.Fatalf("%v, %v", nodes, err)
	}

	r.crash(1)
	r.crash(2)
	if code, body := fetch(ctx, t, left, "/readyz"); code != http.StatusOK &&
		!strings.Contains(body, "meta does not answer") {
		t.Errorf("readyz answers %d %s, want 200, or that meta does not answer", code, body)
	}
	var status *pb.NodeStatusResponse
	awaitTrue(ctx, t, "the end of all leaderships", func() bool {
		var err error
		if status, err = transport.NodeStatus(ctx); err != nil {
			t.Fatalf("no status without a quorum: %v", err)
		}
		for _, s := range status.Tablets {
			if s.Leader || s.LeaderNode != 0 || s.LeaderlessMs == 0 {
				return false
			}
		}
		return status.GetMeta().GetError() != "" && status.Meta.LeaderNode == 0
	})
	if len(status.Tablets) == 0 || status.Meta.AnsweredAgoMs < 0 || len(status.Linked) == 0 ||
		status.LinkedAgeMs < 0 {
		t.Errorf("the status lacks something: %v", status)
	}
	nodes, err := handle.Client(left.DB()).Admin().Nodes(ctx, &pb.NodesRequest{Leaders: true})
	if err != nil || nodes.Unavailable == "" || nodes.AgeMs < 0 || len(nodes.Nodes) != 3 ||
		len(nodes.Leaders) != 0 {
		t.Errorf("%v, %v", nodes, err)
	}
	for _, n := range nodes.GetNodes() {
		if n.Alive != (n.NodeId == r.id(0)) || n.State != pb.NodeState_NODE_STATE_ACTIVE {
			t.Errorf("the report on node %d is: %v", n.NodeId, n)
		}
	}
	awaitTrue(ctx, t, "a probe that fails", func() bool {
		code, body := fetch(ctx, t, left, "/readyz")
		return code == http.StatusServiceUnavailable &&
			strings.Contains(body, "meta does not answer")
	})
	after := series(ctx, t, left)
	for name := range before {
		if _, there := after[name]; !there {
			t.Errorf("GONE: %s", name)
		}
	}
	if after["percolator_meta_up"] != 0 ||
		after["percolator_tablets_leaderless"] != float64(len(status.Tablets)) ||
		after["percolator_observer_figures_age_seconds"] == 0 ||
		after["percolator_placement_figures_age_seconds"] == 0 {
		t.Errorf("the metrics do not tell: %v", after)
	}
}

// TestObserversAddUp: the list of observers includes the runs of all nodes.
func TestObserversAddUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := watch()
	r := newRig(t, 2, func(_ int, c *node.Config) {
		c.Placement.Off, c.Observers = true, o.register
	})
	const rows = 10 // fewer than a watcher keeps
	for i := range rows {
		if err := set(ctx, r.nodes[0].DB(), strconv.Itoa(i), o.column, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nodes[0].DB().WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	var own uint64
	for _, n := range r.nodes {
		for _, s := range n.Status().Observers {
			own += s.Commits
		}
	}
	for i, n := range r.nodes {
		states, err := handle.Client(n.DB()).Transport().Observers(ctx)
		if err != nil || len(states) != 1 {
			t.Fatalf("the observers are %v, %v, want 1", states, err)
		}
		s := states[0]
		if s.GetStatus().GetCommits() != own || own < rows || len(s.Nodes) != 2 ||
			len(s.Silent) != 0 {
			t.Errorf("node %d: %d runs of %d on nodes %v, silent %v", i, s.GetStatus().GetCommits(),
				own, s.Nodes, s.Silent)
		}
	}
}

// TestVerifySkipsWhoIsAway: an absent node is named, and not waited for again with each tablet.
func TestVerifySkipsWhoIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := three(ctx, t, 4, func(_ int, c *node.Config) { c.Placement.GoneAfter = time.Hour })
	away := r.id(2)
	r.crash(2)
	admin := handle.Client(r.nodes[0].DB()).Admin()
	// too short for a wait with each tablet
	patience, end := context.WithTimeout(ctx, 50*time.Second)
	defer end()
	for _, d := range r.tablets(ctx) {
		described, err := admin.DescribeTablet(patience,
			&pb.DescribeTabletRequest{TabletId: d.TabletId})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range described.Replicas {
			if (x.Error != "") != (x.NodeId == away) || (x.Status == nil) != (x.NodeId == away) {
				t.Errorf("tablet %d is described as %v", d.TabletId, described)
			}
		}
		var answer *pb.VerifyTabletResponse
		awaitTrue(patience, t, "a comparison", func() bool { // leaders may be elected at the moment
			var err error
			answer, err = admin.VerifyTablet(patience,
				&pb.VerifyTabletRequest{TabletId: d.TabletId})
			return err == nil
		})
		if answer.Equal || len(answer.Replicas) != 3 {
			t.Errorf("tablet %d: %v", d.TabletId, answer)
		}
		for _, c := range answer.Replicas {
			if (c.NodeId == away) != (c.Error == "its node is down or unreachable") ||
				(c.NodeId == away) == c.Result.GetDone() {
				t.Errorf("tablet %d: %v", d.TabletId, c)
			}
		}
	}
}

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// busyCluster is bankCluster with three nodes whose replicas have answered.
func busyCluster() *fakeCluster {
	fake := bankCluster()
	replica := func(id, load uint64, leader bool) *pb.StatusResponse {
		return &pb.StatusResponse{
			Tablet: &pb.TabletDescriptor{TabletId: id, StartTable: 16}, Leader: leader, Load: load, SizeBytes: 1 << 20,
		}
	}
	fake.whole = &pb.ClusterStatusResponse{
		Nodes: []*pb.NodeReport{
			{Node: &pb.Node{NodeId: 1, Alive: true}, Status: &pb.NodeStatusResponse{
				Tablets: []*pb.StatusResponse{replica(1, 5, true), replica(2, 1, false), replica(3, 2, false)}}},
			{Node: &pb.Node{NodeId: 2, Alive: true}, Status: &pb.NodeStatusResponse{
				Tablets: []*pb.StatusResponse{replica(2, 40, true), replica(3, 900, true)}}},
			{Node: &pb.Node{NodeId: 5}},
		},
		Observers: fake.observers,
	}
	fake.clients = busyClients()
	return fake
}

// TestTabletsByLoad: the figures are those of the leaders, on whatever node, and with --sort load
// the busiest tablet comes first.
func TestTabletsByLoad(t *testing.T) {
	for order, want := range map[string]string{"range": "1 2 3", "load": "3 2 1"} {
		code, stdout, stderr := runApp(t, busyCluster(), nil, "tablet", "ls", "--sort", order)
		var ids []string
		for _, line := range strings.Split(strings.TrimSpace(stdout), "\n")[1:] {
			fields := strings.Fields(line)
			ids = append(ids, fields[0])
			if fields[0] == "3" && fields[len(fields)-1] != "900" {
				t.Errorf("tablet 3 is not as its leader reports: %q", line)
			}
		}
		if got := strings.Join(ids, " "); code != 0 || got != want {
			t.Errorf("by %s: %d, %q, want %q; %s", order, code, got, want, stderr)
		}
	}
	_, stdout, _ := runApp(t, busyCluster(), nil, "tablet", "ls", "-o", "json")
	if !strings.Contains(stdout, `"replicas":[{"node":1,"leader":false`) ||
		!strings.Contains(stdout, `{"node":2,"leader":true`) {
		t.Errorf("replicas: %s", stdout)
	}
	if code, _, _ := runApp(t, busyCluster(), nil, "tablet", "ls", "--sort", "size"); code != 2 {
		t.Errorf("an unknown order: exit code %d", code)
	}
}

// TestTop: without a terminal there is one sample, with the busiest first.
func TestTop(t *testing.T) {
	code, stdout, stderr := runApp(t, busyCluster(), nil, "top", "--rows", "2")
	for _, want := range []string{"NODE", "TABLET", "OBSERVER", "CLIENT", "count", `"shop\x1b[1m"`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%d, without %q:\n%s%s", code, want, stdout, stderr)
		}
	}
	if strings.Contains(stdout, "\x1b") || !strings.Contains(stderr, "node 3: silent") {
		t.Errorf("%q, %q", stdout, stderr)
	}
	_, stdout, _ = runApp(t, busyCluster(), nil, "top", "--rows", "2", "-o", "json")
	var sample struct {
		Nodes   []struct{ Load, Leaders uint64 }
		Tablets []struct{ Tablet, Leader uint64 }
		Clients []struct {
			Rate uint64 `json:"cells_per_second"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &sample); err != nil {
		t.Fatal(err)
	}
	if len(sample.Nodes) != 3 || sample.Nodes[1].Load != 940 || sample.Nodes[1].Leaders != 2 {
		t.Errorf("nodes: %+v", sample.Nodes)
	}
	if len(sample.Tablets) != 2 || sample.Tablets[0].Tablet != 3 || sample.Tablets[0].Leader != 2 {
		t.Errorf("tablets: %+v", sample.Tablets)
	}
	if len(sample.Clients) != 2 || sample.Clients[0].Rate != 50 {
		t.Errorf("clients: %+v", sample.Clients)
	}
}

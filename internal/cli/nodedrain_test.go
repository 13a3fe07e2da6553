package cli

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
)

// TestNodeByAddress: an address names the node that is alive there, not a former one, in every
// command that takes a node.
func TestNodeByAddress(t *testing.T) {
	former := &pb.Node{
		NodeId: 1, Incarnation: 3, Listen: "10.0.0.1:7800", State: pb.NodeState_NODE_STATE_DRAINED,
	}
	gone := &pb.Node{
		NodeId: 2, Incarnation: 1, Listen: "10.0.0.1:7800", State: pb.NodeState_NODE_STATE_GONE,
	}
	here := &pb.Node{
		NodeId: 4, Incarnation: 1, Listen: "10.0.0.1:7800", State: pb.NodeState_NODE_STATE_ACTIVE,
		Alive: true,
	}
	also := &pb.Node{
		NodeId: 5, Incarnation: 2, Listen: "10.0.0.1:7800", State: pb.NodeState_NODE_STATE_ACTIVE,
		Alive: true,
	}
	other := &pb.Node{
		NodeId: 9, Incarnation: 1, Listen: "10.0.0.9:7800", State: pb.NodeState_NODE_STATE_ACTIVE,
		Alive: true,
	}
	for _, tc := range []struct {
		name  string
		nodes []*pb.Node
		id    uint64   // 0: refused
		says  []string // of a refusal
	}{
		{"replaced", []*pb.Node{former, gone, here, other}, 4, nil},
		{"alone and away", []*pb.Node{former, other}, 1, nil},
		{"none is alive", []*pb.Node{former, gone, other}, 0,
			[]string{
				"node 1 (incarnation 3, drained, away), node 2 (incarnation 1, gone, away)",
				"use the node's id",
			}},
		{"two are alive", []*pb.Node{former, here, also}, 0,
			[]string{
				"node 4 (incarnation 1, active, alive)", "node 5 (incarnation 2, active, alive)",
			}},
		{"nobody", []*pb.Node{other}, 0, []string{"no node has the address 10.0.0.1:7800", "node ls"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, args := range [][]string{
				{"node", "drain", "10.0.0.1:7800"},
				{"tablet", "move", "7", "--leader", "--to", "10.0.0.1:7800"},
				{"tablet", "move", "7", "--from", "10.0.0.1:7800", "--to", "9"},
			} {
				cluster := bankCluster()
				cluster.nodes = slices.Clone(tc.nodes)
				code, stdout, stderr := runApp(t, cluster, nil, args...)
				if tc.id == 0 {
					for _, says := range tc.says {
						if code != shell.ExitFailed || !strings.Contains(stderr, says) ||
							len(cluster.sent) > 0 {
							t.Errorf("%v: exit code %d, sent %v, no %q in %s", args, code,
								cluster.sent, says, stderr)
						}
					}
					continue
				}
				if code != shell.ExitDone || len(cluster.sent) != 1 {
					t.Fatalf("%v: exit code %d, sent %v: %s%s", args, code, cluster.sent, stdout,
						stderr)
				}
				var named uint64
				switch req := cluster.sent[0].(type) {
				case *pb.DrainNodeRequest:
					named = req.NodeId
				case *pb.MoveTabletRequest:
					named = req.FromNode
					if req.Leader {
						named = req.ToNode
					}
				}
				if named != tc.id {
					t.Errorf("%v: node %d, want %d", args, named, tc.id)
				}
			}
		})
	}
}

// TestDrainSaysHowFarItIs: a waiting drain prints how many replicas have moved, of how many.
func TestDrainSaysHowFarItIs(t *testing.T) {
	cluster := bankCluster()
	for replicas, state := range []pb.NodeState{
		pb.NodeState_NODE_STATE_DRAINED, pb.NodeState_NODE_STATE_DRAINING,
	} {
		cluster.drain = append([]*pb.Node{{
			NodeId: 2, Alive: true, State: state, Replicas: uint32(replicas), DrainReplicas: 7,
		}}, cluster.drain...)
	}
	code, stdout, stderr := runApp(t, cluster, nil, "node", "drain", "2", "--wait")
	if code != shell.ExitDone || !strings.Contains(stderr, "node 2: 6 of 7 replicas have been moved") ||
		!strings.Contains(stdout, "node 2 is drained") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

// TestDrainOfAForgottenNode: a waiting drain fails if the node is forgotten meanwhile.
func TestDrainOfAForgottenNode(t *testing.T) {
	cluster := bankCluster()
	cluster.drain = []*pb.Node{{NodeId: 2, State: pb.NodeState_NODE_STATE_DRAINING}, {NodeId: 1, Alive: true}}
	code, stdout, stderr := runApp(t, cluster, nil, "node", "drain", "2", "--wait")
	if code != shell.ExitFailed || !strings.Contains(stderr, "node 2 was forgotten during its drain") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

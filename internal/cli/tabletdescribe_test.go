package cli

import (
	"context"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// DescribeTablet implements pb.AdminServer: a leader, and a learner whose node is unreachable.
func (f fakeAdmin) DescribeTablet(_ context.Context,
	req *pb.DescribeTabletRequest) (*pb.DescribeTabletResponse, error) {
	return &pb.DescribeTabletResponse{
		Tablet: &pb.TabletDescriptor{
			TabletId: req.TabletId, Replicas: []*pb.Replica{
				{NodeId: 1}, {NodeId: 2, Learner: true},
			},
		},
		Replicas: []*pb.ReplicaStatus{
			{NodeId: 1, Status: &pb.StatusResponse{
				Leader: true, Term: 4, AppliedIndex: 40, LastIndex: 41, LeaderNode: 1,
			}},
			{NodeId: 2, Error: "its node is down or unreachable"},
		},
	}, nil
}

// TestTabletDescribe: each replica has a line, also one that does not answer.
func TestTabletDescribe(t *testing.T) {
	code, stdout, stderr := runApp(t, bankCluster(), nil, "tablet", "describe", "7")
	for _, want := range []string{
		"leader", "40", "41", "learner", "its node is down or unreachable",
	} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%q is missing: exit code %d\n%s%s", want, code, stdout, stderr)
		}
	}
	if code, _, _ := runApp(t, bankCluster(), nil, "tablet", "describe", "seven"); code != 2 {
		t.Errorf("a tablet that is no number: exit code %d", code)
	}
}

// TestTabletMerge: the output names the tablet that now holds the row.
func TestTabletMerge(t *testing.T) {
	code, stdout, stderr := runApp(t, bankCluster(), nil, "tablet", "merge", "bank", "m")
	if code != 0 || !strings.Contains(stdout, "tablet 7 of bank holds m") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

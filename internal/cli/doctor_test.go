package cli

import (
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
)

func TestDoctor(t *testing.T) {
	cluster := bankCluster()
	cluster.whole = &pb.ClusterStatusResponse{
		Nodes: []*pb.NodeReport{
			{Node: &pb.Node{NodeId: 1}, Status: &pb.NodeStatusResponse{}}, {Node: &pb.Node{NodeId: 2}},
		},
		Survives: 1,
	}
	code, stdout, stderr := runApp(t, cluster, nil, "doctor")
	if code != shell.ExitDone || stdout != "1 of 2 nodes answer; any one node may fail; nothing is wrong\n" {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	cluster.whole.Findings = []*pb.Finding{{
		Severity: pb.Severity_SEVERITY_CRITICAL, Kind: "observer-unlinked", Subject: "observer \x1b[2J",
		Text: "Nobody runs it.", Remedy: "Start it.",
	}}
	code, stdout, stderr = runApp(t, cluster, nil, "doctor")
	if code != shell.ExitFailed || !strings.Contains(stderr, "needs attention") {
		t.Errorf("with something critical: exit code %d: %s", code, stderr)
	}
	want := "CRITICAL  observer \\x1b[2J: Nobody runs it. [observer-unlinked]\n          Start it.\n"
	if !strings.HasPrefix(stdout, want) {
		t.Errorf("printed %q, want %q", stdout, want)
	}
	code, stdout, _ = runApp(t, cluster, nil, "doctor", "--ignore", "disk-low,observer-unlinked")
	if code != shell.ExitDone || !strings.HasPrefix(stdout, want) {
		t.Errorf("with all ignored: exit code %d, printed %q", code, stdout)
	}
	code, _, stderr = runApp(t, cluster, nil, "doctor", "--ignore", "disk-low,disk-lwo")
	if code != shell.ExitUsage || !strings.Contains(stderr, "--ignore disk-lwo: unknown kind") ||
		!strings.Contains(stderr, "observer-unlinked") {
		t.Errorf("with an unknown kind ignored: exit code %d: %s", code, stderr)
	}
	code, stdout, _ = runApp(t, cluster, nil, "doctor", "-o", "json")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != shell.ExitFailed || len(lines) != 2 || !strings.Contains(lines[0], `"severity":"critical"`) ||
		lines[1] != `{"nodes":2,"answer":1,"survives":1,"findings":1}` {
		t.Errorf("exit code %d: %q", code, lines)
	}
}

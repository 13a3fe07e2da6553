package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/store"
)

// FinishRecovery implements pb.AdminServer.
func (f fakeAdmin) FinishRecovery(_ context.Context,
	req *pb.FinishRecoveryRequest) (*pb.FinishRecoveryResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.FinishRecoveryResponse{}, f.fail
}

// TestRecoverVerify: possible damage after a loss is found and counted, and only a consistent
// cluster ends the recovery.
func TestRecoverVerify(t *testing.T) {
	for _, tc := range []struct {
		name    string
		status  pb.Status // of the transactions that hold the locks
		highest uint64
		differ  bool
		code    int
		says    string
	}{
		{"in order", pb.Status_STATUS_COMMITTED, 9, false, shell.ExitDone, "is verified"},
		{"no primary", pb.Status_STATUS_ROLLED_BACK, 9, false, shell.ExitDone,
			"3 rolled back, 1 of them secondaries without a primary; 5 notifications wait, 2 are parked"},
		{"alive", pb.Status_STATUS_LIVE, 9, false, shell.ExitFailed, "belong to live transactions"},
		{"old timestamps", pb.Status_STATUS_COMMITTED, 1 << 60, false, shell.ExitFailed,
			"was granted before the loss"},
		{"replicas differ", pb.Status_STATUS_COMMITTED, 9, true, shell.ExitFailed, "replicas that differ"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := lockedCluster(tc.status, 0)
			c.whole = &pb.ClusterStatusResponse{
				Recoveries: []*pb.Recovery{{Plan: "p", HighestTs: tc.highest}},
				Observers:  []*pb.ObserverState{{Notifications: 5, Parked: 2}},
			}
			if tc.differ {
				c.verified = func(uint64) (*pb.VerifyTabletResponse, error) {
					return &pb.VerifyTabletResponse{
						Replicas: []*pb.ReplicaChecksum{checksum(1, 2), checksum(2, 3)},
					}, nil
				}
			}
			code, stdout, stderr := runApp(t, c, nil, "recover", "verify")
			if code != tc.code || !strings.Contains(stdout+stderr, tc.says) {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
			finished := slices.ContainsFunc(c.sent, func(m proto.Message) bool {
				_, ok := m.(*pb.FinishRecoveryRequest)
				return ok
			})
			if finished != (tc.code == shell.ExitDone) {
				t.Errorf("UNVERIFIED: the recovery has ended: %v", finished)
			}
		})
	}
	c := bankCluster()
	c.whole = &pb.ClusterStatusResponse{}
	if code, stdout, _ := runApp(t, c, nil, "recover", "verify"); code != shell.ExitDone ||
		!strings.Contains(stdout, "no recovery is unverified") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

// threeVoters creates the directory of a node that has voted with two others, one of them reachable
// at the address.
func threeVoters(t *testing.T, addr string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "n1")
	st, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	self, err := join.OpenSelf(st)
	if err == nil {
		err = self.Joined(&pb.JoinResponse{ClusterId: "c", Nodes: []*pb.Node{{NodeId: 7, Listen: addr}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range cluster.FirstTablets(self.Identity().NodeID) {
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: 2, NodeId: 7}, &pb.Replica{ReplicaId: 3, NodeId: 9})
		b := &store.Batch{}
		tablet.Bootstrap(b, d, 1)
		if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRecoverCommands goes from a stopped node's directory to an applied plan, with all refusals in
// between.
func TestRecoverCommands(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dir := threeVoters(t, l.Addr().String())
	at := t.TempDir()
	plan, inspection := filepath.Join(at, "plan.json"), filepath.Join(at, "n1.json")
	run := func(code int, says string, args ...string) (stdout string) {
		t.Helper()
		got, stdout, stderr := runApp(t, bankCluster(), nil, append([]string{"recover"}, args...)...)
		if got != code || !strings.Contains(stdout+stderr, says) {
			t.Fatalf("%v: exit code %d, no %q in\n%s%s", args, got, says, stdout, stderr)
		}
		return stdout
	}
	run(shell.ExitUsage, "--dir", "inspect")
	run(shell.ExitFailed, "not a node's directory", "inspect", "--dir", at)
	run(shell.ExitFailed, "plan: "+at+" is not a node's directory", "plan", "--dir", at)
	run(shell.ExitUsage, "pass the files printed by `recover inspect`", "plan")
	run(shell.ExitUsage, `"x" is not a number`, "plan", "--dead", "x", "--dir", at)
	run(shell.ExitUsage, `is out of range`, "plan", "--dead", "99999999999999999999", "--dir", at)
	if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
		t.Errorf("inspect has made %v, %v", left, err)
	}
	text := run(shell.ExitDone, `"fingerprint"`, "inspect", "--dir", dir)
	if err := os.WriteFile(inspection, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plan+"0", []byte("listen: here"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(shell.ExitFailed, "plan.json0 is not a valid inspection, as `recover inspect` prints it: ", "plan", plan+"0")
	run(shell.ExitFailed, "plan.json0 is not a valid plan, as `recover plan` writes it: ", "apply", plan+"0", "--dir", dir)
	run(shell.ExitFailed, "a quorum may be alive", "plan", inspection, "--dead", "7", "--out", plan)
	run(shell.ExitFailed, "but a service answers at its address", "plan", inspection, "--dead", "7,9", "--out", plan)
	stdout := run(shell.ExitDone, "apply it to the directories of nodes", "plan", inspection, "--dead", "7,9", "--no-probe",
		"--out", plan)
	if strings.Count(stdout, "  recover  ") != 2 {
		t.Errorf("the plan is printed as\n%s", stdout)
	}
	run(shell.ExitFailed, "exist", "plan", inspection, "--dead", "7,9", "--no-probe", "--out", plan)
	run(shell.ExitDone, `"action":"recover"`, "plan", "--dir", dir, "--dead", "7,9", "--no-probe", "--out", plan+"2",
		"-o", "json")

	st, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	run(shell.ExitFailed, "stop the node first", "apply", plan, "--dir", dir)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	run(shell.ExitDone, "applied plan", "apply", plan, "--dir", dir)
	run(shell.ExitDone, "was already applied to", "apply", plan, "--dir", dir)
	run(shell.ExitFailed, "has changed since its inspection", "apply", plan+"2", "--dir", dir)
}

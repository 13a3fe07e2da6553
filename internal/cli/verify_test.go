package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
)

// VerifyTablet implements pb.AdminServer: by default every tablet has one replica.
func (f fakeAdmin) VerifyTablet(_ context.Context,
	req *pb.VerifyTabletRequest) (*pb.VerifyTabletResponse, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	if f.verified != nil {
		return f.verified(req.TabletId)
	}
	return &pb.VerifyTabletResponse{
		Equal: true, Replicas: []*pb.ReplicaChecksum{checksum(1, 0xab00+req.TabletId)},
	}, nil
}

func checksum(node, sum uint64) *pb.ReplicaChecksum {
	return &pb.ReplicaChecksum{
		NodeId: node, Result: &pb.ChecksumResponse{
			Id: 5, Done: true, Checksum: sum, Index: 40, Entries: 12,
		},
	}
}

// A difference, or a replica without a result, gives exit code 1 after all tablets have been
// compared.
func TestVerify(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer *pb.VerifyTabletResponse
		err    error
		want   []string
	}{
		{"different", &pb.VerifyTabletResponse{
			Replicas: []*pb.ReplicaChecksum{checksum(1, 7), checksum(2, 8)},
		}, nil,
			[]string{
				"DIFFERENT: node 1: 0000000000000007 of 12 entries; node 2: 0000000000000008 of 12 entries", "1 of 3 tablets have replicas that differ",
			}},
		{"one is missing", &pb.VerifyTabletResponse{
			Replicas: []*pb.ReplicaChecksum{checksum(1, 7), {NodeId: 2, Error: "unreachable"}},
		}, nil,
			[]string{
				"not compared: node 1: 0000000000000007 of 12 entries; node 2: unreachable",
				"1 of 3 tablets could not be compared",
			}},
		{"no leader", nil, errors.New("no leader"),
			[]string{"no leader", "1 of 3 tablets could not be compared"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := bankCluster()
			cluster.verified = func(tablet uint64) (*pb.VerifyTabletResponse, error) {
				if tablet == 2 {
					return tc.answer, tc.err
				}
				return &pb.VerifyTabletResponse{
					Equal: true, Replicas: []*pb.ReplicaChecksum{checksum(1, 3)},
				}, nil
			}
			code, stdout, stderr := runApp(t, cluster, nil, "verify")
			if code != shell.ExitFailed {
				t.Errorf("exit code %d", code)
			}
			for _, want := range tc.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("no %q in\n%s%s", want, stdout, stderr)
				}
			}
			if strings.Count(stdout, "equal\n") != 2 {
				t.Errorf("the other tablets are missing:\n%s", stdout)
			}
			code, stdout, _ = runApp(t, cluster, nil, "verify", "-o", "json")
			if code != shell.ExitFailed || strings.Count(stdout, `"equal":true`) != 2 ||
				strings.Count(stdout, `"equal":false`) != 1 {
				t.Errorf("exit code %d\n%s", code, stdout)
			}
		})
	}
}

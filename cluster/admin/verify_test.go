package admin

import (
	"context"
	"errors"
	"fmt"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestChecksumOf: a replica past the entry never has its checksum; one that has not reached it is
// polled until the caller's context ends.
func TestChecksumOf(t *testing.T) {
	began := &pb.ChecksumResponse{Id: 12345, Index: 10}
	for _, tc := range []struct {
		name   string
		answer *pb.ChecksumResponse
		want   error
	}{
		{"done", &pb.ChecksumResponse{Id: 12345, Done: true, Applied: 10}, nil},
		{"past the entry", &pb.ChecksumResponse{Applied: 10}, errPassed},
		{"past the entry, and computing", &pb.ChecksumResponse{Applied: 10, Computing: true},
			errNoChecksum},
		{"before the entry", &pb.ChecksumResponse{Applied: 9}, errNoChecksum},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := New(Config{Self: 1, Members: cluster.NewAlone(cluster.Member{NodeID: 1})})
			asked := 0
			s.ask = func(_ context.Context, _ uint64, req *pb.TabletRequest) (*pb.TabletResponse,
				error) {
				if asked++; asked == 2 || req.GetChecksum().GetId() != began.Id {
					cancel()
				}
				return &pb.TabletResponse{Result: &pb.TabletResponse_Checksum{Checksum: tc.answer}},
					nil
			}
			if _, err := s.checksumOf(ctx, 1, 7, began); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
}

// TestWithoutResult: the table of replicas has no space for a library's connection errors.
func TestWithoutResult(t *testing.T) {
	for want, err := range map[string]error{
		"its node is down or unreachable": fmt.Errorf(
			"%w: remoting: unreachable: node 2 at 127.0.0.1:1", txn.ErrNotSent),
		"its node did not respond in time": fmt.Errorf("peer: node 2: %w",
			context.DeadlineExceeded),
		"the replica did not compute the checksum in time": errNoChecksum,
	} {
		if got := withoutResult(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestSameChecksums(t *testing.T) {
	result := func(sum, index, entries uint64) *pb.ReplicaChecksum {
		return &pb.ReplicaChecksum{
			Result: &pb.ChecksumResponse{Done: true, Checksum: sum, Index: index, Entries: entries},
		}
	}
	none := &pb.ReplicaChecksum{Error: "unreachable"}
	for _, c := range []struct {
		replicas []*pb.ReplicaChecksum
		want     bool
	}{
		{[]*pb.ReplicaChecksum{result(1, 2, 3), result(1, 2, 3), result(1, 2, 3)}, true},
		{[]*pb.ReplicaChecksum{result(1, 2, 3), result(9, 2, 3)}, false},
		{[]*pb.ReplicaChecksum{result(1, 2, 3), result(1, 3, 3)}, false},
		{[]*pb.ReplicaChecksum{result(1, 2, 3), result(1, 2, 4)}, false},
		{[]*pb.ReplicaChecksum{result(1, 2, 3), none}, false},
		{[]*pb.ReplicaChecksum{none, result(1, 2, 3)}, false},
		{nil, false},
	} {
		if got := sameChecksums(c.replicas); got != c.want {
			t.Errorf("%v: %v", c.replicas, got)
		}
	}
}

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// The replicas of a tablet are compared as of one entry, whatever is written meanwhile.
func TestVerify(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "", true, true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	a := &admin{n: n}
	var sums []uint64
	for i := range 2 {
		err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprint("r", i), percolator.Column{Table: "t", Name: "c"}, []byte("v"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range n.router.All() {
			r, err := a.VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: d.TabletId})
			if err != nil {
				t.Fatal(err)
			}
			if !r.Equal || len(r.Replicas) != 1 || r.Replicas[0].NodeId != n.identity.NodeID || r.Replicas[0].Result.GetIndex() == 0 {
				t.Fatalf("tablet %d: %v", d.TabletId, r)
			}
			sums = append(sums, r.Replicas[0].Result.Checksum)
		}
	}
	slices.Sort(sums)
	if tablets := len(n.router.All()); len(slices.Compact(sums)) <= tablets {
		t.Errorf("another row changes none of the %d checksums", tablets)
	}
	tablet := n.router.All()[0].TabletId
	began := &pb.ChecksumResponse{Id: 12345, Index: 1} // of an entry that everybody is past
	if _, err := n.checksumOf(ctx, n.identity.NodeID, tablet, began); !errors.Is(err, errPassed) {
		t.Errorf("a result that never comes: %v", err)
	}
	short, end := context.WithTimeout(ctx, 2*verifyAgain)
	defer end()
	began.Index = 1 << 40 // the replica may yet come to it
	if _, err := n.checksumOf(short, n.identity.NodeID, tablet, began); errors.Is(err, errPassed) || err == nil {
		t.Errorf("a result that may come: %v", err)
	}
	if _, err := a.VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: 999}); err == nil {
		t.Error("a tablet that does not exist is verified")
	}
}

// TestWithoutResult: a table of replicas has no room for what a library says of a connection.
func TestWithoutResult(t *testing.T) {
	for want, err := range map[string]error{
		"its node is away":                                  fmt.Errorf("%w: remoting: unreachable: node 2 at 127.0.0.1:1", txn.ErrNotSent),
		"its node has not answered in time":                 fmt.Errorf("peer: node 2: %w", context.DeadlineExceeded),
		"the replica has not computed the checksum in time": errNoChecksum,
	} {
		if got := withoutResult(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestSameChecksums(t *testing.T) {
	result := func(sum, index, entries uint64) *pb.ReplicaChecksum {
		return &pb.ReplicaChecksum{Result: &pb.ChecksumResponse{Done: true, Checksum: sum, Index: index, Entries: entries}}
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

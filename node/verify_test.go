package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
)

// TestVerify: on a single node the comparison of each tablet yields one checksum, which another row
// changes; that of an unknown tablet fails.
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
	a := handle.Client(n.DB()).Admin()
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
			if !r.Equal || len(r.Replicas) != 1 || r.Replicas[0].NodeId != n.identity.NodeID ||
				r.Replicas[0].Result.GetIndex() == 0 {
				t.Fatalf("tablet %d: %v", d.TabletId, r)
			}
			sums = append(sums, r.Replicas[0].Result.Checksum)
		}
	}
	slices.Sort(sums)
	if tablets := len(n.router.All()); len(slices.Compact(sums)) <= tablets {
		t.Errorf("another row changes none of the %d checksums", tablets)
	}
	if _, err := a.VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: 999}); err == nil {
		t.Error("a tablet that does not exist is verified")
	}
}

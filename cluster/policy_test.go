package cluster_test

import (
	"context"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// policyRecord is a cluster's policy.
type policyRecord struct{ policy *pb.Policy }

func (r policyRecord) Read(context.Context) (*pb.Policy, error) { return r.policy, nil }

func (r policyRecord) Found(context.Context, *pb.Policy) (*pb.Policy, error) { return r.policy, nil }

// TestReadReturnsWhatItRead: the policy that a read finds is the one that it returns.
func TestReadReturnsWhatItRead(t *testing.T) {
	changes := 0
	view := cluster.NewPolicyView(cluster.PolicyConfig{
		Own: &pb.Policy{}, CheckHistory: func(time.Duration) error { return nil }, Warn: func(string, ...any) {},
	})
	view.Follow(policyRecord{&pb.Policy{Version: 2, Agreed: wire.AgreedPB(version.Agreed{Minimum: version.Known().Newest, Active: version.Known().Newest})}}, version.NewGate(version.Known(), 0, func(version.Number) error { return nil }), func() { changes++ })
	for range 2 {
		if got, err := view.Read(t.Context()); err != nil || got.GetVersion() != 2 || changes != 1 {
			t.Errorf("read version %d, %v, after %d changes; want 2 and one change", got.GetVersion(), err, changes)
		}
	}
}

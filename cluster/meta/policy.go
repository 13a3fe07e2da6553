package meta

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// The cluster's policy: one record in meta whose version increases with every change. Every node
// reads it (cluster.PolicyView), as do the creation of tablets and the registration of nodes.

// rowPolicy is the row of the policy.
const rowPolicy = "policy"

// Policy is the cluster's policy.
type Policy struct{ records }

// Read returns the cluster's policy, completed by the defaults. Its version is 0 if there is none
// yet.
func (r *Policy) Read(ctx context.Context) (*pb.Policy, error) {
	p, _, err := load[*pb.Policy](ctx, r.records, rowPolicy)
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

// Found is like Read, but if there is no policy yet it stores first as the cluster's, with the
// agreed versions in first only if no node has registered. Of several nodes that do so
// concurrently one succeeds, and all return the same policy.
func (r *Policy) Found(ctx context.Context, first *pb.Policy) (*pb.Policy, error) {
	p, err := update(ctx, r.records, rowPolicy, func(have *pb.Policy) (*pb.Policy, []change, error) {
		if have != nil {
			return have, nil, nil
		}
		p := policy.Complete(first)
		p.Version = 1
		// Nodes that joined before there was a policy may be of an earlier build.
		nodes, err := list[*wire.NodeRecord](ctx, r.records, prefixNode)
		if len(nodes) > 0 {
			p.Agreed = nil
		}
		return p, nil, err
	})
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

// Set changes the fields present in set, and returns the whole policy. CODE_INVALID if the result
// is not a valid policy.
func (r *Policy) Set(ctx context.Context, set *pb.Policy) (*pb.Policy, error) {
	if err := policy.Check(set); err != nil {
		return nil, refuse(pb.Error_CODE_INVALID, "%v", err)
	}
	set = proto.CloneOf(set)
	set.Grants = nil // a merge would append them to the existing ones
	return update(ctx, r.records, rowPolicy, func(have *pb.Policy) (*pb.Policy, []change, error) {
		if have == nil {
			return nil, nil, refuse(pb.Error_CODE_UNAVAILABLE,
				"the cluster has no policy yet: the node that leads meta writes it once it runs a "+
					"version with policies")
		}
		p := policy.Complete(have)
		proto.Merge(p, set)
		// Version and Agreed belong to meta, whatever set contains.
		p.Version, p.Agreed = have.Version+1, have.Agreed
		// Check the whole again: settings valid by themselves may contradict each other.
		if err := policy.Check(p); err != nil {
			return nil, nil, refuse(pb.Error_CODE_INVALID, "%v", err)
		}
		return p, nil, nil
	})
}

// Agree raises the versions that the cluster's nodes have agreed on, and returns the policy.
// Registrations of nodes are conditional on the policy: each node supports the minimum, or
// registered before the change.
func (r *Policy) Agree(ctx context.Context, to version.Agreed) (*pb.Policy, error) {
	p, err := update(ctx, r.records, rowPolicy, func(have *pb.Policy) (*pb.Policy, []change, error) {
		if have == nil {
			return nil, nil, refuse(pb.Error_CODE_UNAVAILABLE, "the cluster has no policy yet")
		}
		now := wire.Agreed(have.Agreed)
		next := version.Agreed{
			Minimum: max(now.Minimum, to.Minimum), Active: max(now.Active, to.Active),
		}
		if next != now {
			have.Version++
			have.Agreed = wire.AgreedPB(next)
		}
		return have, nil, nil
	})
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

package meta

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file keeps the cluster's policy: one record in meta, which every change gives a
// new version. It is read by the jobs of meta's leader, and by whoever makes tablets.

// rowPolicy is the row of the policy.
const rowPolicy = "policy"

// Policy is the cluster's policy.
type Policy struct{ records }

// Read returns the cluster's policy, complete with the defaults. Its version is 0 if
// there is none yet.
func (r *Policy) Read(ctx context.Context) (*pb.Policy, error) {
	p, _, err := load[*pb.Policy](ctx, r.records, rowPolicy)
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

// Found is like Read, but if there is no policy yet it makes first the cluster's
// own, with its versions only if no node has registered. Of several nodes that do so at once
// one wins, and all return the same.
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

// Set changes what set says of the policy, and returns all of it. CODE_INVALID if
// that cannot be a policy.
func (r *Policy) Set(ctx context.Context, set *pb.Policy) (*pb.Policy, error) {
	if err := policy.Check(set); err != nil {
		return nil, refuse(pb.Error_CODE_INVALID, "%v", err)
	}
	set = proto.CloneOf(set)
	set.Grants = nil // merged they would be added to those that there are
	return update(ctx, r.records, rowPolicy, func(have *pb.Policy) (*pb.Policy, []change, error) {
		if have == nil {
			return nil, nil, refuse(pb.Error_CODE_UNAVAILABLE,
				"the cluster has no policy yet: the node that leads meta writes it, as soon as it is of a "+
					"version that knows of one")
		}
		p := policy.Complete(have)
		proto.Merge(p, set)
		// These are meta's, whatever set says.
		p.Version, p.Agreed = have.Version+1, have.Agreed
		// Again, for the whole: settings that are right one by one may not go together.
		if err := policy.Check(p); err != nil {
			return nil, nil, refuse(pb.Error_CODE_INVALID, "%v", err)
		}
		return p, nil, nil
	})
}

// Agree changes what the cluster's nodes have agreed on, upward, and returns the policy.
// Registrations of nodes are written on condition of it: each is of a node that knows the
// minimum, or came before.
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

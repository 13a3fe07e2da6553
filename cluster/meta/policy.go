package meta

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file keeps the cluster's policy: one record in meta, which every change gives a
// new version. It is read by the jobs of meta's leader, and by whoever makes tablets.

// rowPolicy is the row of the policy.
const rowPolicy = "policy"

// Policy reads the cluster's policy, complete with the defaults. Its version is 0 if
// there is none yet.
func (m *Meta) Policy(ctx context.Context) (*pb.Policy, error) {
	p, _, err := load[*pb.Policy](ctx, m.records, rowPolicy)
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

// FoundPolicy is like Policy, but if there is no policy yet it makes first the cluster's
// own. Of several nodes that do so at once one wins, and all return the same.
func (m *Meta) FoundPolicy(ctx context.Context, first *pb.Policy) (*pb.Policy, error) {
	p, err := update(ctx, m.records, rowPolicy, func(have *pb.Policy) (*pb.Policy, []change, error) {
		if have != nil {
			return have, nil, nil
		}
		p := policy.Complete(first)
		p.Version = 1
		return p, nil, nil
	})
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

// SetPolicy changes what set says of the policy, and returns all of it. CODE_INVALID if
// that cannot be a policy.
func (m *Meta) SetPolicy(ctx context.Context, set *pb.Policy) (*pb.Policy, error) {
	if err := policy.Check(set); err != nil {
		return nil, refuse(pb.Error_CODE_INVALID, "%v", err)
	}
	return update(ctx, m.records, rowPolicy, func(have *pb.Policy) (*pb.Policy, []change, error) {
		if have == nil {
			return nil, nil, refuse(pb.Error_CODE_UNAVAILABLE,
				"the cluster has no policy yet: the node that leads meta writes it, as soon as it is of a "+
					"version that knows of one")
		}
		p := policy.Complete(have)
		proto.Merge(p, set)
		// The version is meta's to count, whatever set says.
		p.Version = have.Version + 1
		// Again, for the whole: settings that are right one by one may not go together.
		if err := policy.Check(p); err != nil {
			return nil, nil, refuse(pb.Error_CODE_INVALID, "%v", err)
		}
		return p, nil, nil
	})
}

// roomForTablets refuses new boundaries at keys in the table with the id if they would
// make more tablets than the policy allows. A boundary that exists costs nothing. Nodes
// that make tablets at the same moment do not see each other's: each may exceed the bound
// by what one request makes.
func (m *Meta) roomForTablets(ctx context.Context, id uint32, keys ...string) error {
	tablets, err := m.Tablets(ctx)
	if err != nil {
		return err
	}
	there, at := 0, map[wire.Position]bool{}
	for _, d := range tablets {
		if start := wire.StartOf(d); start.Table >= mvcc.FirstUserTable {
			there++
			at[start] = true
		}
	}
	more := 0
	for _, key := range keys {
		if start := (wire.Position{Table: mvcc.TableID(id), Row: key}); !at[start] {
			at[start] = true
			more++
		}
	}
	// Nothing is made, so the request is allowed also where the bound was lowered since.
	if more == 0 {
		return nil
	}
	p, err := m.Policy(ctx)
	if err != nil {
		return err
	}
	if most := p.GetSplitMaxTablets(); uint64(there+more) > most {
		return refuse(pb.Error_CODE_TOO_LARGE,
			"there are %d tablets, and at most %d are allowed: %d more would have to be made. `percolator cluster set "+
				"split-max-tablets=N` allows more", there, most, more)
	}
	return nil
}

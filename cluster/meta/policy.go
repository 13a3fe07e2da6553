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

// policy returns the stored policy, without the defaults, and its bytes, which are nil if
// there is none.
func (m *Meta) policy(ctx context.Context) (*pb.Policy, []byte, error) {
	value, err := m.get(ctx, rowPolicy)
	if err != nil {
		return nil, nil, err
	}
	p := &pb.Policy{}
	return p, value, decode(rowPolicy, value, p)
}

// Policy reads the cluster's policy, complete with the defaults. Its version is 0 if
// there is none yet.
func (m *Meta) Policy(ctx context.Context) (*pb.Policy, error) {
	p, _, err := m.policy(ctx)
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

// FoundPolicy is like Policy, but if there is no policy yet it makes first the cluster's
// own. Of several nodes that do so at once one wins, and all return the same.
func (m *Meta) FoundPolicy(ctx context.Context, first *pb.Policy) (p *pb.Policy, err error) {
	err = retry(ctx, func() (bool, error) {
		var old []byte
		if p, old, err = m.policy(ctx); err != nil || old != nil {
			return true, err
		}
		p = policy.Complete(first)
		p.Version = 1
		value, err := encode(p)
		if err != nil {
			return false, err
		}
		return m.swap(ctx, change{row: rowPolicy, value: value})
	})
	if err != nil {
		return nil, err
	}
	return policy.Complete(p), nil
}

// SetPolicy changes what set says of the policy, and returns all of it. CODE_INVALID if
// that cannot be a policy.
func (m *Meta) SetPolicy(ctx context.Context, set *pb.Policy) (p *pb.Policy, err error) {
	if err := policy.Check(set); err != nil {
		return nil, refuse(pb.Error_CODE_INVALID, "%v", err)
	}
	err = retry(ctx, func() (bool, error) {
		var old []byte
		if p, old, err = m.policy(ctx); err != nil {
			return false, err
		}
		if old == nil {
			return false, refuse(pb.Error_CODE_UNAVAILABLE,
				"the cluster has no policy yet: the node that leads meta writes it, as soon as it is of a "+
					"version that knows of one")
		}
		// The version is meta's to count, whatever set says.
		version := p.Version
		p = policy.Complete(p)
		proto.Merge(p, set)
		p.Version = version + 1
		// Again, for the whole: settings that are right one by one may not go together.
		if err := policy.Check(p); err != nil {
			return false, refuse(pb.Error_CODE_INVALID, "%v", err)
		}
		value, err := encode(p)
		if err != nil {
			return false, err
		}
		return m.swap(ctx, change{row: rowPolicy, old: old, value: value})
	})
	if err != nil {
		return nil, err
	}
	return p, nil
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

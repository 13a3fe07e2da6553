package admin

import (
	"context"
	"fmt"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file ends upgrades: it has the cluster use what all its nodes know (docs/adr/0038).
// What has been agreed on is in meta alone; a call that was cut short is made again.

// builds is which versions the nodes' builds know.
type builds struct {
	newest version.Number // that any of them knows
	behind []string       // those that do not know it, as people read it
}

// FinalizeUpgrade implements pb.AdminServer. First no earlier build is let in any more, and
// every node that is alive has its directory say so; an error after that leaves the cluster
// there, where it uses nothing new and nodes of an earlier build cannot come back. Then the
// new is used.
func (s *Service) FinalizeUpgrade(ctx context.Context,
	_ *pb.FinalizeUpgradeRequest) (*pb.FinalizeUpgradeResponse, error) {
	p, err := s.cfg.Node.ReadPolicy(ctx)
	if err != nil {
		return nil, err
	}
	before := wire.Agreed(p.GetAgreed())
	to, err := s.commonVersion(ctx)
	if err != nil {
		return nil, err
	}
	// Done already, perhaps by a call whose answer was lost.
	if to <= before.Active {
		return &pb.FinalizeUpgradeResponse{Agreed: wire.AgreedPB(before)}, nil
	}
	if err := s.agree(ctx, version.Agreed{Minimum: to}); err != nil {
		return nil, err
	}
	// Again: a node of an earlier build may have registered before the minimum was raised.
	// None does so afterwards.
	if _, err := s.commonVersion(ctx); err != nil {
		return nil, coded.Errorf("", "%w; no earlier build is let in any more: go on from there, and run "+
			"this again", err)
	}
	if err := s.agree(ctx, version.Agreed{Active: to}); err != nil {
		return nil, err
	}
	return &pb.FinalizeUpgradeResponse{
		Agreed: wire.AgreedPB(version.Agreed{Minimum: to, Active: to}), Changed: true,
	}, nil
}

// agree writes to meta what the nodes agree on, and returns when every node that is alive has
// taken note of it. One that is away does so before it opens a replica.
func (s *Service) agree(ctx context.Context, to version.Agreed) error {
	p, err := s.cfg.Policy.Agree(ctx, to)
	if err != nil {
		return err
	}
	if err := s.cfg.Node.ApplyCatalogue(ctx); err != nil {
		return coded.Errorf("admin", "not every node has taken note of %s yet; run this again: %w",
			agreedText(wire.Agreed(p.Agreed)), err)
	}
	return nil
}

// agreedText names what the nodes agree on, in errors.
func agreedText(a version.Agreed) string {
	return fmt.Sprintf("the cluster's version %d, of which %d is in use", a.Minimum, a.Active)
}

// commonVersion returns the version that all nodes know as their newest, those too that are
// away: by what they were registered with, and by what those that are alive say. It is
// refused while they differ.
func (s *Service) commonVersion(ctx context.Context) (version.Number, error) {
	nodes, err := s.cfg.Nodes.Nodes(ctx)
	if err != nil {
		return 0, err
	}
	// A node that was started again and has yet to register counts by what gossip says of it
	// too: its build may be another than the one that meta knows of.
	var b builds
	// Twice: what is not behind is known only when all have been seen.
	for range 2 {
		b.behind = nil
		for _, n := range nodes {
			m, alive := s.cfg.Members.Member(n.NodeId)
			name := fmt.Sprintf("node %d (build %s)", n.NodeId, n.Version)
			if !alive {
				name = fmt.Sprintf("node %d, which is away (last build %s)", n.NodeId, n.Version)
			}
			b.see(name, wire.Versions(n.Versions))
			if alive && m.Incarnation > n.Incarnation { // it has yet to register
				b.see(fmt.Sprintf("node %d", n.NodeId), m.Versions)
			}
		}
	}
	if len(b.behind) > 0 {
		return 0, refuse("not every node knows version %d: %s: start a newer build there, or remove nodes that do not come back "+
			"(percolator node forget)", b.newest, strings.Join(b.behind, "; "))
	}
	return b.newest, nil
}

// see takes note of a node's build.
func (b *builds) see(name string, r version.Range) {
	b.newest = max(b.newest, r.Newest)
	if r.Newest < b.newest {
		b.behind = append(b.behind, fmt.Sprintf("%s knows %s", name, r))
	}
}

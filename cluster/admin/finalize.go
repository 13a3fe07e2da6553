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

// Completion of upgrades: the cluster starts to use the features that all its nodes support
// (docs/adr/0038). The agreed versions are in meta, and in each node's directory. The operator
// repeats an interrupted call.

// builds are the versions supported by the nodes' builds.
type builds struct {
	newest version.Number // newest version supported by some node
	behind []string       // descriptions of the nodes that do not support it
}

// FinalizeUpgrade implements pb.AdminServer. First, earlier builds are no longer admitted, and
// every live node records that in its directory; an error after that leaves the cluster in this
// state, where it uses nothing new and nodes of an earlier build cannot return. Then the new
// features are used.
func (s *Service) FinalizeUpgrade(ctx context.Context,
	_ *pb.FinalizeUpgradeRequest) (*pb.FinalizeUpgradeResponse, error) {
	p, err := s.cfg.View.Read(ctx)
	if err != nil {
		return nil, err
	}
	before := wire.Agreed(p.GetAgreed())
	to, err := s.commonVersion(ctx)
	if err != nil {
		return nil, err
	}
	// The version is active already, perhaps by a call whose response was lost.
	if to <= before.Active {
		return &pb.FinalizeUpgradeResponse{Agreed: wire.AgreedPB(before)}, nil
	}
	if err := s.agree(ctx, version.Agreed{Minimum: to}); err != nil {
		return nil, err
	}
	// Again: a node of an earlier build may have registered before the minimum was raised. None
	// can afterwards.
	if _, err := s.commonVersion(ctx); err != nil {
		return nil, coded.Errorf("", "%w; then run this command again: "+
			"earlier builds are no longer admitted", err)
	}
	if err := s.agree(ctx, version.Agreed{Active: to}); err != nil {
		return nil, err
	}
	return &pb.FinalizeUpgradeResponse{
		Agreed: wire.AgreedPB(version.Agreed{Minimum: to, Active: to}), Changed: true,
	}, nil
}

// agree writes the agreed versions to meta, and returns when every live node has recorded them. A
// node that is down does so before it opens a replica.
func (s *Service) agree(ctx context.Context, to version.Agreed) error {
	p, err := s.cfg.Policy.Agree(ctx, to)
	if err != nil {
		return err
	}
	if err := s.cfg.Node.ApplyCatalogue(ctx); err != nil {
		return coded.Errorf("admin", "not every node has recorded %s yet; run this command again: %w",
			agreedText(wire.Agreed(p.Agreed)), err)
	}
	return nil
}

// agreedText describes the agreed versions, in errors.
func agreedText(a version.Agreed) string {
	return fmt.Sprintf("the minimum version %d and the active version %d", a.Minimum, a.Active)
}

// commonVersion returns the newest version that some node's build supports, by the registrations of
// all nodes, including those that are down, and by the gossip of live nodes that have restarted
// since. It fails unless every node supports that version.
func (s *Service) commonVersion(ctx context.Context) (version.Number, error) {
	nodes, err := s.cfg.Nodes.Nodes(ctx)
	if err != nil {
		return 0, err
	}
	// A restarted node that has not registered yet counts by its gossip record too: its build may
	// differ from the registered one.
	var b builds
	// Twice: which nodes are behind is known only when all have been seen.
	for range 2 {
		b.behind = nil
		for _, n := range nodes {
			m, alive := s.cfg.Members.Member(n.NodeId)
			name := fmt.Sprintf("node %d (build %s)", n.NodeId, n.Version)
			if !alive {
				name = fmt.Sprintf("node %d, which is down (last build %s)", n.NodeId, n.Version)
			}
			b.see(name, wire.Versions(n.Versions))
			if alive && m.Incarnation > n.Incarnation { // this incarnation has not registered yet
				b.see(fmt.Sprintf("node %d", n.NodeId), m.Versions)
			}
		}
	}
	if len(b.behind) > 0 {
		return 0, refuse("not every node supports version %d: %s: start a newer build there, or remove nodes that do not return "+
			"(percolator node forget)", b.newest, strings.Join(b.behind, "; "))
	}
	return b.newest, nil
}

// see adds a node's build.
func (b *builds) see(name string, r version.Range) {
	b.newest = max(b.newest, r.Newest)
	if r.Newest < b.newest {
		b.behind = append(b.behind, fmt.Sprintf("%s supports %s", name, r))
	}
}

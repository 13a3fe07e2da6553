package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// PolicyRecord is the policy of the cluster in meta. *meta.Policy implements it.
type PolicyRecord interface {
	// Read returns the policy; its version is 0 if the cluster has none.
	Read(ctx context.Context) (*pb.Policy, error)
	// Found stores own if the cluster has no policy, and returns the policy of the cluster.
	Found(ctx context.Context, own *pb.Policy) (*pb.Policy, error)
}

// PolicyView is the newest policy of the cluster that this node has read; the policy itself is
// in meta. The node reads it when it opens, when another node has changed it, and
// periodically. The jobs of meta's leader read it when they start and are restarted when it
// changes. The configuration of the node only counts in a cluster without a policy, which
// this node founds.
//
// Reading waits for meta on the caller's goroutine. Several goroutines may read at once; the
// newest version wins.
type PolicyView struct {
	cfg PolicyConfig

	record  PolicyRecord // Follow sets record, gate and changed
	gate    *version.Gate
	changed func()

	mu      sync.Mutex
	known   *pb.Policy // immutable; nil if the cluster had none, or it was not read yet
	readAt  time.Time  // time of the last read
	differs []string   // a line for each explicitly set setting that the policy overrules
}

// PolicyConfig configures a PolicyView.
type PolicyConfig struct {
	// Own is the policy that the configuration of this node describes.
	Own *pb.Policy
	// Given contains the names of the settings that were set explicitly.
	Given map[string]bool
	// CheckHistory returns an error if an observer may run longer than history is kept.
	CheckHistory func(history time.Duration) error
	// Warn logs a warning.
	Warn func(text string, args ...any)
}

// NewPolicyView returns a PolicyView that knows cfg.Own only.
func NewPolicyView(cfg PolicyConfig) *PolicyView { return &PolicyView{cfg: cfg} }

// Now returns the newest policy that was read, or the node's own if the cluster had none or it
// was not read yet. The caller must not change it.
func (p *PolicyView) Now() *pb.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return p.cfg.Own
	}
	return p.known
}

// LastRead returns the newest policy that was read, nil if the cluster had none or it was not read
// yet, and the time of the last read, which is zero before the first.
func (p *PolicyView) LastRead() (*pb.Policy, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known, p.readAt
}

// Overruled returns a line for each explicitly set setting of the node that the policy
// overrules.
func (p *PolicyView) Overruled() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.differs
}

// CheckHistory returns an error if an observer of this node may run longer than history.
func (p *PolicyView) CheckHistory(history time.Duration) error { return p.cfg.CheckHistory(history) }

// Follow sets the record to read, the gate that learns the agreed versions, and the function
// to call after a newer policy was read. It is called once, before any read.
func (p *PolicyView) Follow(record PolicyRecord, gate *version.Gate, changed func()) {
	p.record, p.gate, p.changed = record, gate, changed
	// A cluster that this node founds uses every feature of its build.
	newest := gate.Build().Newest
	p.cfg.Own.Agreed = wire.AgreedPB(version.Agreed{Minimum: newest, Active: newest})
}

// Read reads the policy from meta and returns the newest known one. It calls changed if the
// policy is newer than the one known before.
func (p *PolicyView) Read(ctx context.Context) (*pb.Policy, error) {
	read, err := p.record.Read(ctx)
	if err != nil {
		return nil, err
	}
	err = p.Learn(read)
	return p.Now(), err
}

// Learn keeps a policy if it is newer than the known one, and then calls changed. It passes the
// versions to the gate every time, because the store may have failed to record one before.
func (p *PolicyView) Learn(read *pb.Policy) error {
	before := p.Now().GetVersion()
	if p.note(read); p.Now().GetVersion() != before {
		p.changed()
	}
	return p.gate.Learn(wire.Agreed(read.GetAgreed()))
}

// Found returns the cluster's policy. In a cluster without one it stores this node's own, so only the
// leader of meta calls it. It does not call changed, since its callers use the policy that it returns.
func (p *PolicyView) Found(ctx context.Context) (*pb.Policy, error) {
	read, err := p.record.Found(ctx, p.cfg.Own)
	if err != nil {
		return nil, fmt.Errorf("cluster: read or store the first policy: %w", err)
	}
	p.note(read)
	return read, p.gate.Learn(wire.Agreed(read.GetAgreed()))
}

// Open reads the policy before the node serves. If the cluster has none and this node leads
// meta, it stores the node's own. leadsMeta returns 0 if this node does not lead meta. An error
// of Open ends the start.
func (p *PolicyView) Open(ctx context.Context,
	leadsMeta func(context.Context) (term uint64)) error {
	// Only the leader of meta founds a policy, so that a node that joins does not impose its
	// own settings.
	read, err := p.Read(ctx)
	if err == nil && read.GetVersion() == 0 && leadsMeta(ctx) != 0 {
		read, err = p.Found(ctx)
	}
	if err != nil {
		return fmt.Errorf("cluster: read the policy: %w", err)
	}
	return p.cfg.CheckHistory(policy.Millis(read.GetHistoryMs()))
}

// note keeps a policy that was read if it is newer than the known one, and then warns of
// explicitly set settings of this node that differ from it, and of a history that is too short
// for an observer of this node.
func (p *PolicyView) note(read *pb.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readAt = time.Now()
	// Version 0 means that the cluster has no policy.
	if read.GetVersion() <= p.known.GetVersion() {
		return
	}
	p.known, p.differs = read, nil
	for _, s := range policy.Settings() {
		own, _ := s.Get(p.cfg.Own)
		cluster, _ := s.Get(read)
		// A default was not chosen, so nobody is warned of it.
		if own == cluster || !p.cfg.Given[s.Name] {
			continue
		}
		p.differs = append(p.differs, fmt.Sprintf("--%s %s is overruled by the cluster's %s",
			s.Name, s.Text(own), s.Text(cluster)))
		p.cfg.Warn("the cluster's policy overrules a setting of this node", "setting", s.Name,
			"node", s.Text(own), "cluster", s.Text(cluster), "to_change_it",
			fmt.Sprintf("percolator cluster set %s=%s", s.Name, s.Text(own)))
	}
	if err := p.cfg.CheckHistory(policy.Millis(read.GetHistoryMs())); err != nil {
		p.cfg.Warn("an observer may run longer than history is kept, and then fails", "error", err)
	}
}

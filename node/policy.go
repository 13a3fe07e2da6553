package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/config"
)

// This file keeps the cluster's policy as this node knows it; the policy itself is in meta.
// The node reads it when it opens, when another node has changed it, and every
// relinkPause. The jobs of meta's leader read it when they start, and are restarted when
// it has changed. The node's own configuration counts only in a cluster without a policy,
// which this node founds. Reading waits for meta, on the caller's goroutine; several may
// read at once, and the newest version wins.

// clusterPolicy is the newest policy that the node has read. It may be used concurrently.
type clusterPolicy struct {
	own       *pb.Policy      // what the node's configuration says
	given     map[string]bool // the settings that somebody chose: all but the defaults
	observers []percolator.ObserverSpec
	warn      func(text string, args ...any) // logs

	record  *meta.Policy  // where it is read; follow sets these
	gate    *version.Gate // is told what the cluster has agreed on
	changed func()        // called after a newer policy was read

	mu      sync.Mutex
	known   *pb.Policy // immutable; nil: none was read
	readAt  time.Time  // when it, or the same again, was read last
	differs []string   // which of the node's settings it overrules, for operators
}

// newClusterPolicy returns a clusterPolicy that knows only the node's configuration. A
// setting counts as given if the configuration says so or it differs from the default.
func newClusterPolicy(cfg Config, observers []percolator.ObserverSpec) *clusterPolicy {
	p := &clusterPolicy{
		own: policyOf(cfg), given: map[string]bool{}, observers: observers, warn: cfg.Logger.Warn,
	}
	for _, name := range cfg.Given {
		p.given[name] = true
	}
	defaults := policyOf(config.DefaultConfig())
	// Two sources, because a setting that was given explicitly may equal the default.
	for _, s := range policy.Settings() {
		own, _ := s.Get(p.own)
		if def, _ := s.Get(defaults); own != def {
			p.given[s.Name] = true
		}
	}
	return p
}

// policyOf returns the policy that a node with the configuration gives a cluster that it
// founds.
func policyOf(cfg Config) *pb.Policy {
	p := &pb.Policy{
		Replicas: proto.Uint64(uint64(cfg.Replicas)), NoCollection: proto.Bool(cfg.Collection.Off),
		NoSplits: proto.Bool(cfg.Splits.Off), HttpLogin: proto.Bool(cfg.HTTPLogin),
	}
	// 0 means the default, which Complete fills in.
	number := func(into **uint64, v uint64) {
		if v > 0 {
			*into = &v
		}
	}
	number(&p.HistoryMs, uint64(cfg.History.Milliseconds()))
	number(&p.MaxHoldMs, uint64(cfg.Collection.MaxHold.Milliseconds()))
	number(&p.GoneAfterMs, uint64(cfg.Placement.GoneAfter.Milliseconds()))
	number(&p.ForgetAfterMs, uint64(cfg.Placement.ForgetAfter.Milliseconds()))
	number(&p.SplitBytes, cfg.Splits.MaxBytes)
	number(&p.SplitLoad, cfg.Splits.MaxLoad)
	number(&p.SplitMaxTablets, uint64(cfg.Splits.MaxTablets))
	return policy.Complete(p)
}

// now returns the newest policy that the node has read; if there is none, what its own
// configuration says. The caller must not change it.
func (p *clusterPolicy) now() *pb.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return p.own
	}
	return p.known
}

// lastRead returns the policy that was read last, nil if there was none, and when.
func (p *clusterPolicy) lastRead() (*pb.Policy, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known, p.readAt
}

// overruled returns a line for each setting of the node that the policy overrules.
func (p *clusterPolicy) overruled() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.differs
}

// follow sets where the policy is read, what is told of versions, and the function to call
// after a newer one was read. It is called once, before any reading.
func (p *clusterPolicy) follow(record *meta.Policy, gate *version.Gate, changed func()) {
	p.record, p.gate, p.changed = record, gate, changed
	// A cluster that this node founds uses all that the node knows.
	newest := gate.Build().Newest
	p.own.Agreed = wire.AgreedPB(version.Agreed{Minimum: newest, Active: newest})
}

// note keeps a policy that was read, if it is newer than the one known, and warns of
// settings of this node that differ from it.
func (p *clusterPolicy) note(read *pb.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readAt = time.Now()
	// Version 0 stands for no policy, and so is never newer.
	if read.GetVersion() <= p.known.GetVersion() {
		return
	}
	p.known, p.differs = read, nil
	for _, s := range policy.Settings() {
		own, _ := s.Get(p.own)
		cluster, _ := s.Get(read)
		// Nobody has chosen a default, so nobody is warned of it.
		if own == cluster || !p.given[s.Name] {
			continue
		}
		p.differs = append(p.differs, fmt.Sprintf("--%s %s is overruled by the cluster's %s",
			s.Name, s.Text(own), s.Text(cluster)))
		p.warn("the cluster's policy overrules a setting of this node", "setting", s.Name, "node", s.Text(own),
			"cluster", s.Text(cluster), "to_change_it",
			fmt.Sprintf("percolator cluster set %s=%s", s.Name, s.Text(own)))
	}
	if err := checkDeadlines(p.observers, policy.Millis(read.GetHistoryMs())); err != nil {
		p.warn("an observer may run longer than history is kept, and then fails", "error", err)
	}
}

// policyTimeout bounds one attempt of the jobs of meta's leader to read the policy.
const policyTimeout = 2 * time.Second

// read reads the policy from meta and returns the newest that the node knows. A newer one
// wakes the worker of changes, which restarts the jobs if they run here.
func (p *clusterPolicy) read(ctx context.Context) (*pb.Policy, error) {
	read, err := p.record.Read(ctx)
	if err != nil {
		return nil, err
	}
	return p.now(), p.learn(read)
}

// learn keeps a policy as note does, and calls changed if it is newer. The gate is told each
// time, for the store may have refused to take note of a version before.
func (p *clusterPolicy) learn(read *pb.Policy) error {
	before := p.now().GetVersion()
	if p.note(read); p.now().GetVersion() != before {
		p.changed()
	}
	return p.gate.Learn(wire.Agreed(read.GetAgreed()))
}

// found is like read, but for the leader of meta: if the cluster has no policy, it makes
// the node's own the cluster's. It does not call changed, since its callers use what it
// returns.
func (p *clusterPolicy) found(ctx context.Context) (*pb.Policy, error) {
	read, err := p.record.Found(ctx, p.own)
	if err != nil {
		return nil, fmt.Errorf("node: the cluster's policy: %w", err)
	}
	p.note(read)
	return read, p.gate.Learn(wire.Agreed(read.GetAgreed()))
}

// open reads the policy before the node lets others in, and founds it if the node has
// just founded the cluster. Its error is final for this start.
func (p *clusterPolicy) open(ctx context.Context,
	leadsMeta func(context.Context) (term uint64)) error {
	// Version 0: the cluster has none yet. Only who leads meta founds one, so that a node
	// that joins does not impose its own settings.
	read, err := p.read(ctx)
	if err == nil && read.GetVersion() == 0 && leadsMeta(ctx) != 0 {
		read, err = p.found(ctx)
	}
	if err != nil {
		return fmt.Errorf("node: read the cluster's policy: %w", err)
	}
	return checkDeadlines(p.observers, policy.Millis(read.GetHistoryMs()))
}

// checkDeadlines returns an error if an observer may run longer than history is kept: it
// could find its snapshot collected (invariant 11 of design section 4).
func checkDeadlines(observers []percolator.ObserverSpec, history time.Duration) error {
	var errs []error
	for _, o := range observers {
		if o.Deadline >= history {
			errs = append(errs, fmt.Errorf(
				"%w: observer %q: its deadline of %v must be below the cluster's history of %v (`percolator cluster set history=…`)",
				percolator.ErrInvalid, o.Name, o.Deadline, history))
		}
	}
	return errors.Join(errs...)
}

// checkFounder checks what open would refuse, before the node founds a cluster with a
// policy that its own observers cannot live with.
func (p *clusterPolicy) checkFounder(self join.Identity, cfg Config) error {
	if !self.Fresh() || (len(cfg.Join) > 0 && cfg.Expect <= 1) {
		return nil // its cluster has a policy
	}
	return checkDeadlines(p.observers, cfg.History)
}

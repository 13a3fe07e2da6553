package node

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/node/config"
)

// newPolicyView returns a cluster.PolicyView of the node's configuration alone. A setting counts as
// set explicitly if the configuration marks it so or it differs from the default.
func newPolicyView(cfg Config, observers []percolator.ObserverSpec) *cluster.PolicyView {
	own, given := policyOf(cfg), map[string]bool{}
	for _, name := range cfg.Given {
		given[name] = true
	}
	defaults := policyOf(config.DefaultConfig())
	// Two sources, because an explicit setting may equal the default.
	for _, s := range policy.Settings() {
		value, _ := s.Get(own)
		if def, _ := s.Get(defaults); value != def {
			given[s.Name] = true
		}
	}
	return cluster.NewPolicyView(cluster.PolicyConfig{
		Own: own, Given: given, Warn: cfg.Logger.Warn,
		CheckHistory: func(history time.Duration) error { return checkDeadlines(observers, history) },
	})
}

// policyOf returns the initial policy of a cluster founded by a node with the configuration.
func policyOf(cfg Config) *pb.Policy {
	p := &pb.Policy{
		Replicas: proto.Uint64(uint64(cfg.Replicas)), NoCollection: proto.Bool(cfg.Collection.Off),
		NoSplits: proto.Bool(cfg.Splits.Off), HttpLogin: proto.Bool(cfg.HTTPLogin),
	}
	// 0 means the default, which Complete sets.
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

// checkDeadlines returns an error if an observer's deadline is not below the history retention: its
// snapshot could be collected during the run (design section 4, "Bounded history").
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

// checkFounder returns the error that policy.Open would return later, so that the node does not found
// a cluster whose policy does not allow its own observers to run. It returns nil if the node cannot
// found one.
func checkFounder(policy *cluster.PolicyView, self join.Identity, cfg Config) error {
	if !self.Fresh() || (len(cfg.Join) > 0 && cfg.Expect <= 1) {
		return nil // the node's cluster already has a policy
	}
	return policy.CheckHistory(cfg.History)
}

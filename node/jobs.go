package node

import (
	"context"
	"errors"
)

// job is work that the node that leads meta does in the background, an actor of its own each.
type job interface {
	// Stop ends it and waits, as far as ctx allows.
	Stop(ctx context.Context) error
}

// startJobs starts them all; they may rely on everything but the listeners.
func (n *Node) startJobs() error {
	return errors.Join(n.startCollector(), n.startSplitter())
}

// stopJobs stops them, last started first.
func (n *Node) stopJobs(ctx context.Context) error {
	var errs []error
	for i := len(n.jobs) - 1; i >= 0; i-- {
		errs = append(errs, n.jobs[i].Stop(ctx))
	}
	n.jobs = nil
	return errors.Join(errs...)
}

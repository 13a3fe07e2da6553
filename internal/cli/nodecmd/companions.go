package nodecmd

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/internal/cli/shell"
)

// errLingers reports that a function beside the node ignores that its context has ended.
var errLingers = errors.New("a function beside the node has not returned")

// companions are the functions that run beside a node, each on a goroutine.
type companions struct {
	group *errgroup.Group
	// failing ends when one of them has failed, or when they are to end.
	failing context.Context
	end     context.CancelFunc
}

// accompany starts the functions. stop must be called.
func accompany(ctx context.Context, node shell.RunningNode,
	fns []func(context.Context, shell.RunningNode) error) *companions {
	running, end := context.WithCancel(ctx)
	c := &companions{end: end}
	c.group, c.failing = errgroup.WithContext(running)
	for _, fn := range fns {
		c.group.Go(func() error {
			err := fn(c.failing, node)
			if running.Err() != nil && errors.Is(err, running.Err()) {
				return nil // as it was told
			}
			return err
		})
	}
	return c
}

// stop ends them and returns the first failure. Those that have not returned in time are left
// to end with the process.
func (c *companions) stop(within time.Duration) error {
	c.end()
	ended := make(chan error, 1)
	go func() { ended <- c.group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(within):
		return errLingers
	}
}

package nodecmd

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/internal/cli/shell"
)

// errLingers reports that a function of app.OnStart has not returned although its context has ended.
var errLingers = errors.New("a function of app.OnStart has not returned")

// companions are the running functions of app.OnStart, each on a goroutine.
type companions struct {
	group *errgroup.Group
	// failing ends when one of the functions fails, or when stop is called.
	failing context.Context
	end     context.CancelFunc
}

// accompany starts the functions. The caller must call stop.
func accompany(ctx context.Context, node shell.RunningNode,
	fns []func(context.Context, shell.RunningNode) error) *companions {
	running, end := context.WithCancel(ctx)
	c := &companions{end: end}
	c.group, c.failing = errgroup.WithContext(running)
	for _, fn := range fns {
		c.group.Go(func() error {
			err := fn(c.failing, node)
			if running.Err() != nil && errors.Is(err, running.Err()) {
				return nil // the function ended because ctx did
			}
			return err
		})
	}
	return c
}

// stop cancels the functions and returns the first failure, or errLingers if one has not returned
// within the duration; that function ends with the process.
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

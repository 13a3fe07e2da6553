package node

import (
	"context"
	"errors"
)

// Run opens a node, serves until ctx ends, drains the node for at most cfg.DrainTimeout and
// closes it. It returns nil if ctx ends, also before the node serves, and closing succeeds. Errors:
// that of Open; those of closing, which wrap context.DeadlineExceeded if the drain takes longer
// (the node is closed nevertheless); and the reason for which the node stopped itself, such as a
// second process with its identity. Use Open to get the node's DB.
//
// Run does not set the runtime's memory limit; app.Main does.
func Run(ctx context.Context, cfg Config) error {
	n, err := Open(ctx, cfg)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-n.Failed():
	}
	draining, end := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer end()
	return errors.Join(failed, n.Close(draining))
}

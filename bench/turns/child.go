package turns

import (
	"context"
	"io"
	"os"
	"os/exec"
)

// Child is another process of the executable of this one. It should end when its standard input
// does.
type Child struct {
	*exec.Cmd

	In  io.Closer // closes its standard input
	Out io.Reader // its standard output
}

// StartChild starts a child with one more variable in its environment, NAME=VALUE, which tells it
// what to do. It is killed when ctx ends.
func StartChild(ctx context.Context, variable string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child{Cmd: exec.CommandContext(ctx, self)}
	c.Env, c.Stderr = append(os.Environ(), variable), os.Stderr
	if c.In, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	if c.Out, err = c.StdoutPipe(); err != nil {
		return nil, err
	}
	return c, c.Start()
}

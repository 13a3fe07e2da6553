package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
)

// This file has what a program adds to the command line that it links: commands and flags
// of its own, and functions that run beside its node.

// Command is a command of the program's own. Use is its name and arguments, as in
// "crawl URL...".
type Command struct {
	Use, Short string
	Flags      func(*flag.FlagSet) // nil: none but those of every client
	Run        func(context.Context, *Invocation) error
}

// Invocation is one call of a Command. It belongs to the command's goroutine.
type Invocation struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	cmd     *cobra.Command
	conn    *connector
	session *session // nil: it has not connected
}

// DB connects by the flags of the command, as --addr, when it is first called. The
// handle ends with the command.
func (i *Invocation) DB(ctx context.Context) (*percolator.DB, error) {
	if i.session == nil {
		bounded, cancel := context.WithTimeoutCause(ctx, i.conn.timeout, errTimeout)
		defer cancel()
		s, err := i.conn.connect(bounded, i.cmd)
		if err != nil {
			return nil, i.conn.cutShort(bounded, err)
		}
		i.session = s
	}
	return i.session.db, nil
}

// Usage returns an error about the arguments.
func (i *Invocation) Usage(format string, args ...any) error {
	return usagef(i.cmd, format, args...)
}

// ownCommands returns the commands of the program. It panics if one has the name of
// another, which is a fault of the program.
func ownCommands(d *deps, root *cobra.Command) []*cobra.Command {
	var cmds []*cobra.Command
	for _, c := range d.app.Commands {
		cmd := &cobra.Command{Use: c.Use, Short: c.Short}
		if slices.ContainsFunc(append(root.Commands(), cmds...), func(other *cobra.Command) bool {
			return other.Name() == cmd.Name()
		}) {
			panic(fmt.Sprintf("percolator: there is a command %q already", cmd.Name()))
		}
		addFlags(cmd.Flags(), c.Flags)
		cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
			ctx, end := d.conn.interruptible(cmd.Context())
			defer end()
			call := &Invocation{
				Args: args, Stdin: d.app.Stdin, Stdout: d.out.stdout, Stderr: d.out.stderr,
				cmd: cmd, conn: d.conn,
			}
			defer func() {
				if call.session == nil {
					return
				}
				if closing := call.session.client.Close(); err == nil {
					err = closing
				}
			}()
			return d.conn.cutShort(ctx, c.Run(ctx, call))
		}
		d.conn.register(cmd.Flags())
		cmds = append(cmds, cmd)
	}
	return cmds
}

// addFlags adds the flags of the program's own.
func addFlags(to *pflag.FlagSet, define func(*flag.FlagSet)) {
	if define == nil {
		return
	}
	own := flag.NewFlagSet("", flag.ContinueOnError)
	define(own)
	// AddGoFlagSet would pass over a name that is taken, and leave the program's variable as
	// it is.
	own.VisitAll(func(f *flag.Flag) { to.AddFlag(pflag.PFlagFromGoFlag(f)) })
}

// withDefault puts the program's default command in front of a command line that names
// none.
func (a *App) withDefault(args []string) []string {
	if a.Default == "" || len(args) > 0 && (args[0] == "" || args[0][0] != '-' ||
		slices.Contains([]string{"-h", "--help", "-v", "--version"}, args[0])) {
		return args
	}
	return append([]string{a.Default}, args...)
}

// errLingers: a function beside the node ignores that its context has ended.
var errLingers = errors.New("a function beside the node has not returned")

// companions are the functions that run beside a node, each on a goroutine.
type companions struct {
	group *errgroup.Group
	// failing ends when one of them has failed, or when they are to end.
	failing context.Context
	end     context.CancelFunc
}

// accompany starts the functions. stop must be called.
func accompany(ctx context.Context, node RunningNode,
	fns []func(context.Context, RunningNode) error) *companions {
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

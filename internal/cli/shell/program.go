package shell

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	percolator "github.com/percolator-go/percolator"
)

// This file has the commands and flags that a program adds to the command line it links.

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
	conn    *Connector
	session *Session // nil: it has not connected
}

// DB connects by the flags of the command, as --addr, when it is first called. The
// handle ends with the command.
func (i *Invocation) DB(ctx context.Context) (*percolator.DB, error) {
	if i.session == nil {
		bounded, cancel := context.WithTimeoutCause(ctx, i.conn.Timeout, ErrTimeout)
		defer cancel()
		s, err := i.conn.Connect(bounded, i.cmd)
		if err != nil {
			return nil, i.conn.CutShort(bounded, err)
		}
		i.session = s
	}
	return i.session.DB, nil
}

// Usage returns an error about the arguments.
func (i *Invocation) Usage(format string, args ...any) error {
	return Usagef(i.cmd, format, args...)
}

// OwnCommands returns the commands of the program. It panics if one has the name of
// another, which is a fault of the program.
func OwnCommands(d *Deps, root *cobra.Command) []*cobra.Command {
	var cmds []*cobra.Command
	for _, c := range d.App.Commands {
		cmd := &cobra.Command{Use: c.Use, Short: c.Short}
		if slices.ContainsFunc(append(root.Commands(), cmds...), func(other *cobra.Command) bool {
			return other.Name() == cmd.Name()
		}) {
			panic(fmt.Sprintf("percolator: there is a command %q already", cmd.Name()))
		}
		AddFlags(cmd.Flags(), c.Flags)
		cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
			ctx, end := d.Conn.Interruptible(cmd.Context())
			defer end()
			call := &Invocation{
				Args: args, Stdin: d.App.Stdin, Stdout: d.Out.Stdout, Stderr: d.Out.Stderr,
				cmd: cmd, conn: d.Conn,
			}
			defer func() {
				if call.session == nil {
					return
				}
				if closing := call.session.Client.Close(); err == nil {
					err = closing
				}
			}()
			return d.Conn.CutShort(ctx, c.Run(ctx, call))
		}
		d.Conn.register(cmd.Flags())
		cmds = append(cmds, cmd)
	}
	return cmds
}

// AddFlags adds the flags of the program's own.
func AddFlags(to *pflag.FlagSet, define func(*flag.FlagSet)) {
	if define == nil {
		return
	}
	own := flag.NewFlagSet("", flag.ContinueOnError)
	define(own)
	// AddGoFlagSet would pass over a name that is taken, and leave the program's variable as
	// it is.
	own.VisitAll(func(f *flag.Flag) { to.AddFlag(pflag.PFlagFromGoFlag(f)) })
}

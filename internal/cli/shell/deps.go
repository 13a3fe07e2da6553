package shell

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// Deps are the dependencies shared by the commands of one command line.
type Deps struct {
	App  *App
	Out  *Printer
	Conn *Connector
}

// NewDeps returns the shared dependencies for one command line of the program.
func NewDeps(a *App) *Deps {
	out := newPrinter(a)
	return &Deps{App: a, Out: out, Conn: &Connector{app: a, out: out}}
}

// NeedsSubcommand is the action of commands that only group others. It always fails.
func NeedsSubcommand(cmd *cobra.Command, _ []string) error {
	return &UsageError{Cmd: cmd, Err: errors.New("a subcommand is needed"), Help: true}
}

// Group returns a command that only groups others.
func Group(use, short, example string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, RunE: NeedsSubcommand,
	}
	cmd.AddCommand(subs...)
	return cmd
}

// before makes the command call fn before anything that it already calls before it runs.
func before(cmd *cobra.Command, fn func(*cobra.Command, []string) error) {
	then := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := fn(cmd, args); err != nil || then == nil {
			return err
		}
		return then(cmd, args)
	}
}

// WithOutput adds -o to the command.
func (d *Deps) WithOutput(cmd *cobra.Command) *cobra.Command {
	d.Out.register(cmd.Flags())
	return cmd
}

// WithClient adds the flags of commands that connect to a node.
func (d *Deps) WithClient(cmd *cobra.Command) *cobra.Command {
	d.Conn.register(cmd.Flags())
	return d.WithOutput(cmd)
}

// ClientCommand makes the command connect and then run fn, both together within --timeout.
func (d *Deps) ClientCommand(cmd *cobra.Command,
	fn func(context.Context, *Session, []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return d.Conn.Run(cmd, func(ctx context.Context, s *Session) error {
			return fn(ctx, s, args)
		})
	}
	return d.WithClient(cmd)
}

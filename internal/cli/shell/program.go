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

// The commands and flags that a program adds to the command line.

// Command is a command of the program's own. Use is its name and arguments, as in
// "crawl URL...".
type Command struct {
	Use, Short string
	Flags      func(*flag.FlagSet) // nil: only those of every client command
	Run        func(context.Context, *Invocation) error
}

// Invocation is one call of a Command. It belongs to the command's goroutine.
type Invocation struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	cmd     *cobra.Command
	conn    *Connector
	session *Session // nil: not connected
}

// DB connects on its first call, by the command's flags, such as --addr. The handle is closed when the
// command ends.
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

// Usage returns a UsageError.
func (i *Invocation) Usage(format string, args ...any) error {
	return Usagef(i.cmd, format, args...)
}

// Shadowed is the name of the command under which a command of percolator stays reachable if a
// command of the program has the same name.
const Shadowed = "percolator"

// OwnCommands returns the commands of the program. It panics if two have the same name, or one has
// a reserved name, which is a fault of the program.
func OwnCommands(d *Deps) []*cobra.Command {
	var cmds []*cobra.Command
	taken := map[string]bool{Shadowed: true, "help": true}
	for _, c := range d.App.Commands {
		cmd := &cobra.Command{Use: c.Use, Short: c.Short}
		if taken[cmd.Name()] {
			panic(fmt.Sprintf("percolator: there is a command %q already", cmd.Name()))
		}
		taken[cmd.Name()] = true
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
		AddFlags(cmd, c.Flags)
		cmds = append(cmds, cmd)
	}
	return cmds
}

// Shadow moves the commands of root that have the name of one of the program's own below the
// command Shadowed, so that a new command of percolator never breaks a program.
func Shadow(root *cobra.Command, own []*cobra.Command) {
	group := &cobra.Command{
		Use:   Shadowed,
		Short: "Run a percolator command whose name this program has for its own",
		RunE:  NeedsSubcommand,
	}
	for _, cmd := range root.Commands() {
		if slices.ContainsFunc(own, func(o *cobra.Command) bool { return o.Name() == cmd.Name() }) {
			root.RemoveCommand(cmd)
			cmd.GroupID = ""
			group.AddCommand(cmd)
		}
	}
	if group.HasSubCommands() {
		root.AddCommand(group)
	}
}

// AddFlags adds the program's own flags to a command that has all of percolator's. One of those
// whose name the program has for its own gets the prefix "percolator-".
func AddFlags(cmd *cobra.Command, define func(*flag.FlagSet)) {
	if define == nil {
		return
	}
	own := flag.NewFlagSet("", flag.ContinueOnError)
	define(own)
	var ours []*pflag.Flag
	cmd.Flags().VisitAll(func(f *pflag.Flag) { ours = append(ours, f) })
	cmd.ResetFlags()
	own.VisitAll(func(f *flag.Flag) { cmd.Flags().AddFlag(pflag.PFlagFromGoFlag(f)) })
	for _, f := range ours {
		if cmd.Flags().Lookup(f.Name) != nil {
			f.Name = Shadowed + "-" + f.Name
		}
		if cmd.Flags().ShorthandLookup(f.Shorthand) != nil {
			f.Shorthand = ""
		}
		cmd.Flags().AddFlag(f)
	}
}

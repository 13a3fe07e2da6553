package shell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// Confirmation of irreversible actions: --yes or, at a terminal, typing the name of what
// will be destroyed. A script gets a usage error, not a prompt that would block it. The prompt precedes
// the connection, so that typing does not count against --timeout.

// maxTyped limits the bytes read at a prompt.
const maxTyped = 64 << 10

// errNotConfirmed reports that something other than the name was typed.
var errNotConfirmed = errors.New("not confirmed")

// Confirmed adds --yes to the command and makes it ask for confirmation before it runs. cost describes
// what it destroys, with %s for its first argument; it is the first part of the prompt and of the usage
// error.
func (d *Deps) Confirmed(cmd *cobra.Command, cost string) *cobra.Command {
	yes := cmd.Flags().Bool("yes", false, "do not ask for confirmation")
	Before(cmd, func(cmd *cobra.Command, args []string) error {
		if *yes {
			return nil
		}
		return d.confirm(cmd, args[0], fmt.Sprintf(cost, inspect.Printable(args[0])))
	})
	return cmd
}

// confirm returns nil if the name is typed at the terminal.
func (d *Deps) confirm(cmd *cobra.Command, name, cost string) error {
	refused := Usagef(cmd, "%s: pass --yes to confirm", cost)
	if !d.Out.AtTerminal(d.App.Stdin) {
		return refused
	}
	prompt := OneLine(fmt.Sprintf("%s; type %s to continue: ", cost, inspect.Printable(name)))
	if _, err := io.WriteString(d.Out.Stderr, prompt); err != nil {
		return err
	}
	ctx, end := d.Conn.Interruptible(cmd.Context())
	defer end()
	typed, err := readLine(ctx, d.App.Stdin)
	if err != nil {
		_, _ = io.WriteString(d.Out.Stderr, "\n") // nothing was typed: end the prompt's line
	}
	switch {
	case errors.Is(err, io.EOF): // nobody is at this terminal, or /dev/null looks like one
		return refused
	case err != nil:
		return err
	case typed != name && typed != inspect.Printable(name):
		return coded.Errorf("", "%w: nothing was changed", errNotConfirmed)
	}
	return nil
}

// readLine reads one line, without its newline. If ctx ends first, it leaves the reading
// goroutine behind, since a read of a terminal can't be interrupted; the process exits
// right after.
func readLine(ctx context.Context, from io.Reader) (string, error) {
	type answer struct {
		text string
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReader(io.LimitReader(from, maxTyped)).ReadString('\n')
		read <- answer{strings.TrimRight(text, "\r\n"), err}
	}()
	select {
	case a := <-read:
		return a.text, a.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// What can't be undone is asked for twice (invariant 7): with --yes, or, at a terminal, by
// typing the name of what will be gone. A script gets no prompt, which would hang it, but a
// usage error. It runs before the command connects, so that nobody types against --timeout.

// maxTyped bounds what is read at a prompt, in bytes.
const maxTyped = 64 << 10

// errNotConfirmed: something else than the name was typed.
var errNotConfirmed = errors.New("not confirmed")

// confirm returns nil if yes is set or the name is typed at the terminal. cost says what the
// command destroys; it begins the prompt and the usage error.
func (r *run) confirm(cmd *cobra.Command, yes bool, name, cost string) error {
	if yes {
		return nil
	}
	refused := usagef(cmd, "%s: give --yes if that is meant", cost)
	if !r.atTerminal(r.Stdin) {
		return refused
	}
	if _, err := io.WriteString(r.Stderr, oneLine(fmt.Sprintf("%s; type %s to go on: ", cost, printable(name)))); err != nil {
		return err
	}
	ctx, end := r.interruptible(cmd.Context())
	defer end()
	switch typed, err := readLine(ctx, r.Stdin); {
	case errors.Is(err, io.EOF): // nobody is at this terminal, or /dev/null looks like one
		return refused
	case err != nil:
		return err
	case typed != name && typed != printable(name):
		return fmt.Errorf("%w: nothing was changed", errNotConfirmed)
	}
	return nil
}

// readLine reads one line, without its end. If ctx ends first, the goroutine that reads stays
// behind until the process ends, which follows at once: a read of a terminal can't be ended.
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

// atTerminal reports whether a stream is a character device, as a terminal is.
func (r *run) atTerminal(stream any) bool {
	if r.terminal != nil {
		return r.terminal(stream)
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

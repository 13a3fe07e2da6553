package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

// This file turns an error into a message, an exit code and advice (invariant 1).

// usageError is a mistake in the command line: exit code 2.
type usageError struct {
	cmd  *cobra.Command // whose help to point at; may be nil
	err  error
	help bool // print the whole help instead of pointing at it
}

// Error is the cause's text.
func (e *usageError) Error() string { return e.err.Error() }

// Unwrap is the cause.
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usageError with a formatted text.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd: cmd, err: fmt.Errorf(format, args...)}
}

// hintError adds advice to an error. The commands in it are templates (printer.advice).
type hintError struct {
	err      error
	hint     string
	operands []operand
}

// withHint returns err with advice on what to do next.
func withHint(err error, hint string, operands ...operand) error {
	return &hintError{err, hint, operands}
}

// Error is the cause's text; report prints the hint on a line of its own.
func (e *hintError) Error() string { return e.err.Error() }

// Unwrap is the cause.
func (e *hintError) Unwrap() error { return e.err }

// report writes the error to standard error, with what to do next, and returns the exit code.
func (d *deps) report(cmd *cobra.Command, err error) int {
	var usage *usageError
	if errors.As(err, &usage) {
		if usage.cmd != nil {
			cmd = usage.cmd
		}
		d.out.complain(cmd, err)
		if usage.help {
			_, _ = fmt.Fprintf(d.out.stderr, "\n%s", cmd.UsageString())
		} else {
			d.out.next("see %s --help", cmd.CommandPath())
		}
		return ExitUsage
	}
	d.out.complain(cmd, err)
	if len(configFaults(err)) > 0 {
		return ExitUsage
	}
	code, hint := d.conn.classify(err)
	own := &hintError{hint: hint}
	errors.As(err, &own) // a command's advice knows more than that for all
	if own.hint != "" {
		d.out.next("%s", d.out.advice(own.hint, own.operands...))
	}
	return code
}

// complain prints the error: one line for each fault of a configuration.
func (p *printer) complain(cmd *cobra.Command, err error) {
	if faults := configFaults(err); len(faults) > 0 {
		_, _ = fmt.Fprintf(p.stderr, "%s: the node cannot start with these settings:\n",
			cmd.CommandPath())
		for _, f := range faults {
			name := settingName(f.Field)
			line := "  " + name + origin(cmd, strings.TrimPrefix(name, "--")) + ": " + f.Problem
			if f.Fix != "" {
				line += "; " + f.Fix
			}
			_, _ = io.WriteString(p.stderr, oneLine(line)+"\n")
		}
		return
	}
	// The library's prefix repeats the command's name, at every level of wrapping.
	text := p.own(strings.ReplaceAll(err.Error(), "percolator: ", ""))
	// Joined errors have a line each, indented so that none of them can pass for advice.
	_, _ = fmt.Fprintf(p.stderr, "%s: %s\n", cmd.CommandPath(),
		strings.ReplaceAll(text, "\n", "\n      "))
}

// configFaults lists the config.Faults in err.
func configFaults(err error) []*config.Fault {
	var faults []*config.Fault
	var walk func(error)
	walk = func(err error) {
		if f, ok := err.(*config.Fault); ok { //nolint:errorlint // the tree is walked by hand
			faults = append(faults, f)
			return
		}
		switch e := err.(type) { //nolint:errorlint // likewise
		case interface{ Unwrap() []error }:
			for _, sub := range e.Unwrap() {
				walk(sub)
			}
		case interface{ Unwrap() error }:
			if sub := e.Unwrap(); sub != nil {
				walk(sub)
			}
		}
	}
	walk(err)
	return faults
}

// classify chooses the exit code of a failure, and the advice where that is the same for
// all commands. The first case that matches counts: the texts of TLS and gRPC say more than
// ErrUnavailable, which they come with.
func (c *connector) classify(err error) (code int, hint string) {
	has := func(part string) bool { return strings.Contains(err.Error(), part) }
	unavailable := errors.Is(err, percolator.ErrUnavailable)
	late := errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded)
	switch {
	// Whatever it came with: the transaction may have committed, so that trying again may do it
	// twice.
	case errors.Is(err, percolator.ErrCommitUnknown):
		return ExitFailed, percolator.Advice(percolator.ErrCommitUnknown)
	case errors.Is(err, errInterrupted):
		return ExitFailed, ""
	case unavailable && has("answers in HTTP/1"):
		return ExitUnavailable, "--addr is a node's --listen address, not that of its console: " +
			"that is three ports further, unless --http says otherwise"
	case unavailable && has("its certificate lacks that host"):
		return ExitUnavailable, "on that node's machine, make its certificate anew with all the " +
			"names it is reached by: `cert create-node NAME --host HOST --ca-dir CA --force`; or name it by " +
			"one of those in the message"
	case unavailable && has("server preface") && !has("remote error: tls: "):
		return ExitUnavailable, "what listens there takes no clients in plain text: a node with " +
			"certificates wants --certs; --addr is a node's --listen address"
	case unavailable && has("tls: first record"):
		return ExitUnavailable, "what listens there takes plain text only: leave --certs out, " +
			"or check that --addr is a node's --listen address"
	case unavailable && has("tls: "):
		return ExitUnavailable, "the node and this command do not accept each other's " +
			"certificates: `cert show` looks at --certs"
	case unavailable && has("waiting to join a cluster"):
		return ExitUnavailable, "the node runs and waits for other nodes of its cluster: start " +
			"those; its log and /readyz name them"
	case unavailable && has("is being restored from"):
		return ExitUnavailable, "run `restore` again as before: it goes on; or give it up with " +
			"`table drop`"
	case errors.Is(err, percolator.ErrDiskFull), refusedWith(err, pb.Error_CODE_DISK_FULL):
		return ExitUnavailable, percolator.Advice(percolator.ErrDiskFull)
	case c.reached && (unavailable || late):
		return ExitUnavailable, "the node runs, but not enough of the nodes that this needs do, " +
			"or it does not reach them: `status` and `node ls` tell what it knows; --timeout " +
			"waits longer"
	case late:
		return ExitUnavailable, "is the node up? `status` asks it; --timeout waits longer"
	case unavailable, status.Code(rootCause(err)) == codes.Unavailable:
		return ExitUnavailable, percolator.Advice(percolator.ErrUnavailable)
	// memberlist passes on only the text of EADDRINUSE
	case errors.Is(err, syscall.EADDRINUSE), has(syscall.EADDRINUSE.Error()):
		return ExitFailed, "another process listens there: stop it, or give --listen (and " +
			"--peer, --gossip, --http) another port; port 0 picks free ones"
	case has("unknown service"):
		return serverCode(err), "--addr is a node's --listen address; the port after it is for " +
			"other nodes"
	case errors.Is(err, percolator.ErrOverloaded):
		return ExitUnavailable, percolator.Advice(err)
	}
	// What a program that uses the library is told too. It failed for itself, unless a
	// node says that it cannot serve.
	hint = percolator.Advice(err)
	if hint != "" {
		return ExitFailed, hint
	}
	return serverCode(err), hint
}

// again adds the hint that running the command again continues after where.
func (c *connector) again(err error, where string) error {
	_, first := c.classify(err)
	switch {
	case errors.Is(err, context.Canceled), // a signal: whatever else the error says came of that
		errors.Is(err, percolator.ErrCommitUnknown): // it writes the same once more
		first = ""
	case first != "":
		first += "; then "
	}
	return withHint(err, first+"run the same command again: it goes on after "+where)
}

// refusedWith reports whether a node refused with the code.
func refusedWith(err error, code pb.Error_Code) bool {
	var refused *txn.ServerError
	return errors.As(err, &refused) && refused.Code == code
}

// serverCode is the exit code for an administrative request that the node refused.
func serverCode(err error) int {
	var refused *txn.ServerError
	if errors.As(err, &refused) {
		switch refused.Code {
		case pb.Error_CODE_UNAVAILABLE, pb.Error_CODE_NOT_LEADER, pb.Error_CODE_OVERLOADED:
			return ExitUnavailable
		}
	}
	return ExitFailed
}

// rootCause returns the innermost of singly wrapped errors, where gRPC's status is.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// noArgs is like cobra.NoArgs, but its error names similar commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		text := fmt.Sprintf("unknown command %q", args[0])
		if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
			text += fmt.Sprintf(" (did you mean %s?)", strings.Join(similar, " or "))
		}
		return usagef(cmd, "%s", text)
	}
	return usagef(cmd, "takes no arguments, got %q", args)
}

// usageArgs derives the number of arguments from a usage line: words in brackets are
// optional, dots stand for any number, and the first flag ends the arguments.
func usageArgs(use string) cobra.PositionalArgs {
	least, most, optional := 0, 0, false
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(strings.TrimLeft(word, "[{("), "-") || word == "|" {
			break
		}
		optional = optional || word[0] == '[' || word[0] == '{' && !strings.HasSuffix(word, "}")
		if !optional {
			least++
		}
		if most++; strings.Contains(word, "...") {
			most = math.MaxInt
			break
		}
	}
	if most == 0 {
		return noArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef(cmd, "too few arguments: usage is %s", cmd.UseLine())
		case len(args) > most:
			return usagef(cmd, "too many arguments: usage is %s", cmd.UseLine())
		}
		return nil
	}
}

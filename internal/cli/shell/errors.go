package shell

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// Errors of commands, and the exit code for any error.

// UsageError reports a mistake in the command line: exit code 2.
type UsageError struct {
	Cmd  *cobra.Command // the command whose help to refer to; may be nil
	Err  error
	Help bool // print the whole help instead of pointing at it
}

// Error returns the cause's text.
func (e *UsageError) Error() string { return e.Err.Error() }

// Text returns the cause's text without its package's name.
func (e *UsageError) Text() string { return coded.Text(e.Err) }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a formatted text.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{Cmd: cmd, Err: coded.Errorf("", format, args...)}
}

// HintError adds advice to an error. The commands in it are templates (Printer.Advice).
type HintError struct {
	err      error
	Hint     string
	Operands []inspect.Operand
}

// WithHint returns err with advice on what to do next.
func WithHint(err error, hint string, operands ...inspect.Operand) error {
	return &HintError{err, hint, operands}
}

// Error returns the cause's text; report prints the hint on a separate line.
func (e *HintError) Error() string { return e.err.Error() }

// Text returns the cause's text without its package's name.
func (e *HintError) Text() string { return coded.Text(e.err) }

// Unwrap returns the cause.
func (e *HintError) Unwrap() error { return e.err }

// Classify returns the exit code of an error, and the advice that is common to all commands.
func (c *Connector) Classify(err error) (code int, hint string) {
	if errors.Is(err, errInterrupted) && !errors.Is(err, percolator.ErrCommitUnknown) {
		return ExitFailed, ""
	}
	late := errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
	hint, outage := inspect.Diagnosis{Answered: c.reached, NoQuorum: c.noQuorum, Late: late}.Of(err)
	if outage {
		return ExitUnavailable, hint
	}
	return ExitFailed, hint
}

// WithResumeHint adds the hint that running the command again continues after where.
func (c *Connector) WithResumeHint(err error, where string) error {
	_, first := c.Classify(err)
	switch {
	case errors.Is(err, context.Canceled), // a signal: other errors are consequences
		errors.Is(err, percolator.ErrCommitUnknown): // the command writes the same again
		first = ""
	case first != "":
		first += "; then "
	}
	return WithHint(err, first+"run the same command again: it resumes after "+where)
}

// ErrNoValue reports that a requested cell or row does not exist.
var ErrNoValue = errors.New("no value")

// KnownObservers is advice on a name that the catalogue does not have.
const KnownObservers = "`observer ls` lists the observers"

// WithObservers adds advice to the error for a name that the catalogue does not have.
func WithObservers(err error) error {
	if errors.Is(err, inspect.ErrNoObserver) {
		return WithHint(err, KnownObservers)
	}
	return err
}

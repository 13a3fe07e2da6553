package shell

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// This file has the errors of commands, and the exit code for any error.

// UsageError is a mistake in the command line: exit code 2.
type UsageError struct {
	Cmd  *cobra.Command // whose help to point at; may be nil
	Err  error
	Help bool // print the whole help instead of pointing at it
}

// Error is the cause's text.
func (e *UsageError) Error() string { return e.Err.Error() }

// Text is the cause's text without its package's name.
func (e *UsageError) Text() string { return coded.Text(e.Err) }

// Unwrap is the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a formatted text.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{Cmd: cmd, Err: coded.Errorf("", format, args...)}
}

// HintError adds advice to an error. The commands in it are templates (Printer.Advice).
type HintError struct {
	err      error
	Hint     string
	Operands []Operand
}

// WithHint returns err with advice on what to do next.
func WithHint(err error, hint string, operands ...Operand) error {
	return &HintError{err, hint, operands}
}

// Error is the cause's text; report prints the hint on a line of its own.
func (e *HintError) Error() string { return e.err.Error() }

// Text is the cause's text without its package's name.
func (e *HintError) Text() string { return coded.Text(e.err) }

// Unwrap is the cause.
func (e *HintError) Unwrap() error { return e.err }

// Classify chooses the exit code of a failure, and the advice where that is the same for
// all commands.
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
	case errors.Is(err, context.Canceled), // a signal: whatever else the error says came of that
		errors.Is(err, percolator.ErrCommitUnknown): // it writes the same once more
		first = ""
	case first != "":
		first += "; then "
	}
	return WithHint(err, first+"run the same command again: it resumes after "+where)
}

// ErrNoValue is returned when a cell or row that was asked for does not exist.
var ErrNoValue = errors.New("no value")

package shell

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// Errors of commands, and the exit code for any error.

// UsageError reports a mistake in the command line: exit code 2.
type UsageError struct {
	cause

	Cmd  *cobra.Command // the command whose help to refer to; may be nil
	Help bool           // print the whole help instead of pointing at it
}

// cause is the error to which a UsageError or HintError adds something that report prints separately.
type cause struct{ err error }

// Error returns the cause's text.
func (c cause) Error() string { return c.err.Error() }

// Text returns the cause's text without its package's name.
func (c cause) Text() string { return coded.Text(c.err) }

// Unwrap returns the cause.
func (c cause) Unwrap() error { return c.err }

// NewUsageError returns a UsageError with a cause; cmd may be nil.
func NewUsageError(cmd *cobra.Command, err error) error {
	return &UsageError{cause: cause{err}, Cmd: cmd}
}

// Usagef returns a UsageError with a formatted text.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return NewUsageError(cmd, coded.Errorf("", format, args...))
}

// HintError adds advice to an error. The commands in it are templates (Printer.Advice).
type HintError struct {
	cause

	Hint     string
	Operands []inspect.Operand
}

// WithHint returns err with advice on what to do next.
func WithHint(err error, hint string, operands ...inspect.Operand) error {
	return &HintError{cause{err}, hint, operands}
}

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

// WithResumeHint adds the hint that running the same command again resumes it after the position
// that where describes, such as "120 rows".
func (c *Connector) WithResumeHint(err error, where string) error {
	_, first := c.Classify(err)
	switch {
	case errors.Is(err, context.Canceled), // a signal: other errors are consequences
		errors.Is(err, percolator.ErrCommitUnknown): // no advice to check first: the user's second run writes the same
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

// ReadableNumber replaces package strconv's text in the error about a flag's value.
func ReadableNumber(err error) error {
	var num *strconv.NumError
	if !errors.As(err, &num) {
		return err
	}
	problem := "not a number"
	if errors.Is(err, strconv.ErrRange) {
		problem = "out of range"
	}
	return errors.New(strings.ReplaceAll(err.Error(), num.Error(), fmt.Sprintf("%q is %s", num.Num, problem)))
}

// DashHint adds to the error about an unknown -x how an argument is written that begins with a
// dash.
func DashHint(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() == "" {
		return err
	}
	return coded.Errorf("", "%w: write -- before an argument that begins with a dash: -- -%s", err,
		unknown.GetSpecifiedShortnames())
}

// NoArgs is like cobra.NoArgs, but its error names similar commands.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		text := fmt.Sprintf("unknown command %q", args[0])
		if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
			text += fmt.Sprintf(" (did you mean %s?)", strings.Join(similar, " or "))
		}
		return Usagef(cmd, "%s", text)
	}
	return Usagef(cmd, "takes no arguments, got %q", args)
}

// UsageArgs derives the number of arguments from a usage line: words in brackets are
// optional, dots stand for any number, and the first flag ends the arguments.
func UsageArgs(use string) cobra.PositionalArgs {
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
		return NoArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef(cmd, "too few arguments: usage is %s", cmd.UseLine())
		case len(args) > most:
			return Usagef(cmd, "too many arguments: usage is %s", cmd.UseLine())
		}
		return nil
	}
}

package shell

import (
	"context"
	"errors"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file has the errors of commands, and the exit code and advice for any error.

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
// all commands. The first case that matches counts: what is wrong with a connection says more
// than ErrUnavailable, which it comes with.
func (c *Connector) Classify(err error) (code int, hint string) {
	is := func(code error) bool { return errors.Is(err, code) }
	unavailable := errors.Is(err, percolator.ErrUnavailable)
	late := errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
	switch {
	// Whatever it came with: the transaction may have committed, so that trying again may do it
	// twice.
	case errors.Is(err, percolator.ErrCommitUnknown):
		return ExitFailed, percolator.Advice(percolator.ErrCommitUnknown)
	case errors.Is(err, errInterrupted):
		return ExitFailed, ""
	case is(rpc.ErrHTTP1):
		return ExitUnavailable, "--addr is a node's --listen address, not that of its console: " +
			"that is three ports further, unless --http says otherwise"
	case is(rpc.ErrWrongHost):
		return ExitUnavailable, "on that node's machine, make its certificate anew with all the " +
			"names it is reached by: `cert create-node NAME --host HOST --ca-dir CA --force`; or name it by " +
			"one of those in the message"
	case is(rpc.ErrWantsTLS):
		return ExitUnavailable, "what listens there takes no clients in plain text: a node with " +
			"certificates wants --certs; --addr is a node's --listen address"
	case is(rpc.ErrPlainText):
		return ExitUnavailable, "what listens there takes plain text only: leave --certs out, " +
			"or check that --addr is a node's --listen address"
	case is(rpc.ErrCertificates), is(rpc.ErrRefusedCert):
		return ExitUnavailable, "the node and this command do not accept each other's " +
			"certificates: `cert show` looks at --certs"
	case is(txn.ErrStarting):
		return ExitUnavailable, "the node runs and waits for other nodes of its cluster: start " +
			"those; its log and /readyz name them"
	case is(txn.ErrRestoring):
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
	case is(syscall.EADDRINUSE):
		return ExitFailed, "another process listens there: stop it, or give --listen (and " +
			"--peer, --gossip, --http) another port; port 0 picks free ones"
	case is(rpc.ErrOtherService):
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

// refusedWith reports whether a node refused with the code.
func refusedWith(err error, code pb.Error_Code) bool {
	var refused *txn.ServerError
	return errors.As(err, &refused) && refused.Code == code
}

// serverCode is the exit code for an administrative request that the node refused.
func serverCode(err error) int {
	if refused, ok := errors.AsType[*txn.ServerError](err); ok {
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

// ErrNoValue is returned when a cell or row that was asked for does not exist.
var ErrNoValue = errors.New("no value")

package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestWrongAddress: connecting to something other than a node's client address, or to an unsuitable
// node, gives an error that says what to change.
func TestWrongAddress(t *testing.T) {
	c := NewDeps(&App{Name: "percolator"}).Conn
	for code, want := range map[error]string{
		rpc.ErrWantsTLS: "--certs; --addr", rpc.ErrRefusedCert: "`cert show`",
		rpc.ErrPlainText: "leave --certs out", rpc.ErrCertificates: "each other's certificates",
		rpc.ErrWrongHost: "`cert create-node NAME --host HOST --ca-dir CA --force`",
		rpc.ErrHTTP1:     "three ports further", rpc.ErrNobody: "start a node",
		txn.ErrStarting: "waits for other nodes", txn.ErrRestoring: "run `restore` again",
	} {
		err := coded.Mark(txn.Errorf("%w: text", percolator.ErrUnavailable), code)
		if exit, hint := c.Classify(err); exit != ExitUnavailable || !strings.Contains(hint, want) {
			t.Errorf("CLASSIFY: %v: %d, %q", code, exit, hint)
		}
	}
	// A text alone is not a code, whatever it contains.
	lies := txn.Errorf("%w: tls: first record, waiting to join a cluster", percolator.ErrUnavailable)
	if _, hint := c.Classify(lies); hint != percolator.Advice(percolator.ErrUnavailable) {
		t.Errorf("CLASSIFY: a text decides: %q", hint)
	}
	taken := coded.Mark(errors.New("gossip: bind: address already in use"), syscall.EADDRINUSE)
	if code, hint := c.Classify(taken); code != ExitFailed || !strings.Contains(hint, "--gossip") {
		t.Errorf("a port that is taken: %d, %q", code, hint)
	}
	other := coded.Mark(&txn.ServerError{Code: pb.Error_CODE_INVALID}, rpc.ErrOtherService)
	if code, hint := c.Classify(other); code != ExitFailed ||
		!strings.Contains(hint, "--listen address") {
		t.Errorf("another node's door: %d, %q", code, hint)
	}
}

// TestUnknownOutcome: after an unknown outcome of a commit, the advice is to read, not to retry,
// whatever the cause.
func TestUnknownOutcome(t *testing.T) {
	c := NewDeps(&App{Name: "percolator"}).Conn
	for _, c.reached = range []bool{false, true} {
		for _, cause := range []error{percolator.ErrUnavailable, percolator.ErrDiskFull,
			percolator.ErrOverloaded, context.DeadlineExceeded, ErrTimeout, errInterrupted} {
			err := fmt.Errorf("%w: %w", percolator.ErrCommitUnknown, cause)
			code, hint := c.Classify(err)
			if code != ExitFailed || !strings.Contains(hint, "before you try again") ||
				percolator.Advice(err) != hint {
				t.Errorf("UNKNOWN: %v: %d, %q, %q", err, code, hint, percolator.Advice(err))
			}
		}
	}
	again := &HintError{}
	if err := c.WithResumeHint(percolator.ErrCommitUnknown, "line 7"); !errors.As(err, &again) ||
		!strings.HasPrefix(again.Hint, "run the same command again") {
		t.Errorf("what writes the same once more: %q", again.Hint)
	}
}

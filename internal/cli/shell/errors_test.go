package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestWrongDoor: who has found something else than a node's address for clients, or not
// what it wants, is told what to change.
func TestWrongDoor(t *testing.T) {
	c := NewDeps(&App{Name: "percolator"}).Conn
	for text, want := range map[string]string{
		`connection error: desc = "error reading server preface: EOF"`:                                      "--certs; --addr",
		`connection error: desc = "error reading server preface: remote error: tls: bad certificate"`:       "`cert show`",
		`authentication handshake failed: tls: first record does not look like a TLS handshake`:             "leave --certs out",
		`authentication handshake failed: tls: failed to verify certificate: x509: signed by unknown`:       "each other's certificates",
		`its certificate lacks that host: tls: failed to verify certificate: x509: certificate is valid`:    "`cert create-node NAME --host HOST --ca-dir CA --force`",
		`the certificates do not match: remote error: tls: certificate required`:                            "`cert show`",
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: refused"`: "start a node",
	} {
		if code, hint := c.Classify(fmt.Errorf("%w: %s", percolator.ErrUnavailable,
			text)); code != ExitUnavailable || !strings.Contains(hint, want) {
			t.Errorf("%s: %d, %q", text, code, hint)
		}
	}
	taken := errors.New(`gossip: listen on 127.0.0.1:7802: failed to start UDP listener: listen udp 127.0.0.1:7802: bind: address already in use`)
	if code, hint := c.Classify(taken); code != ExitFailed || !strings.Contains(hint, "--gossip") {
		t.Errorf("a port that is taken: %d, %q", code, hint)
	}
	other := &txn.ServerError{
		Code: pb.Error_CODE_INVALID, Message: "the node does not know this request: unknown service percolator.v1.Percolator",
	}
	if code, hint := c.Classify(other); code != ExitFailed ||
		!strings.Contains(hint, "--listen address") {
		t.Errorf("another node's door: %d, %q", code, hint)
	}
}

// TestUnknownOutcome: who does not know whether a transaction committed is told to look, not
// to try again, whatever kept it from being known.
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

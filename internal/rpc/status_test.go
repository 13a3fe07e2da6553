package rpc

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestCodesOverTheWire: a client distinguishes the statuses of a node by codes, not by texts, and
// the texts name the package once.
func TestCodesOverTheWire(t *testing.T) {
	for _, c := range []struct {
		status error
		codes  []error
		text   string
	}{
		{Starting("waiting to join"), []error{txn.ErrStarting, txn.ErrUnavailable},
			"percolator: unavailable: waiting to join"},
		{status.Error(codes.Unavailable, "waiting to join a cluster"), []error{txn.ErrUnavailable},
			"percolator: unavailable: waiting to join a cluster"},
		{status.Error(codes.Unimplemented, "unknown service x"), []error{ErrOtherService},
			"percolator: the node does not know this request: unknown service x"},
		{toStatus(txn.Errorf("%w: no tablet", txn.ErrUnavailable)), nil,
			"percolator: unavailable: no tablet"},
	} {
		err := fromStatus(c.status)
		if err.Error() != c.text {
			t.Errorf("CODES: %q, want %q", err, c.text)
		}
		for _, code := range []error{txn.ErrStarting, txn.ErrUnavailable, ErrOtherService} {
			wanted := false
			for _, w := range c.codes {
				wanted = wanted || w == code
			}
			if errors.Is(err, code) != wanted {
				t.Errorf("CODES: %v: %v is %v", err, code, !wanted)
			}
		}
	}
	// An earlier build's client sees only the code, and waits.
	for _, d := range status.Convert(Starting("x")).Details() {
		if _, ours := d.(*pb.Error); ours {
			t.Error("CODES: a node that starts refuses with an error of ours")
		}
	}
}

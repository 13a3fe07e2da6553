package inspect

import (
	"errors"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Diagnosis contains the context of an error.
type Diagnosis struct {
	Answered bool // a node has answered before
	NoQuorum bool // the node says that tablets have no quorum
	Late     bool // the time for the answer has passed
}

// Of returns the remedy for the error, with templates of commands in backquotes (Commands.Advice),
// and whether the cluster cannot serve. The first matching case counts: a connection's fault is
// more specific than ErrUnavailable, which wraps it.
func (d Diagnosis) Of(err error) (hint string, outage bool) {
	is := func(code error) bool { return errors.Is(err, code) }
	refused := errors.Is(err, percolator.ErrUnavailable)
	switch {
	// First, whatever else the error wraps: the transaction may have committed, so another attempt
	// may repeat its effects.
	case errors.Is(err, percolator.ErrCommitUnknown):
		return percolator.Advice(percolator.ErrCommitUnknown), false
	case is(rpc.ErrHTTP1):
		return "--addr is a node's --listen address, not that of its console: " +
			"that is three ports further, unless --http says otherwise", true
	case is(rpc.ErrWrongHost):
		return "on that node's machine, make its certificate anew with all the " +
			"names it is reached by: `cert create-node NAME --host HOST --ca-dir CA --force`; or name it by " +
			"one of those in the message", true
	case is(rpc.ErrWantsTLS):
		return "what listens there takes no clients in plain text: a node with " +
			"certificates wants --certs; --addr is a node's --listen address", true
	case is(rpc.ErrPlainText):
		return "what listens there takes plain text only: leave --certs out, " +
			"or check that --addr is a node's --listen address", true
	case is(rpc.ErrCertificates), is(rpc.ErrRefusedCert):
		return "the node and this command do not accept each other's " +
			"certificates: `cert show` looks at --certs", true
	case is(txn.ErrStarting):
		return "the node runs and waits for other nodes of its cluster: start " +
			"those; its log and /readyz name them", true
	case is(txn.ErrRestoring):
		return "run `restore` again as before, or the `load --bulk` that was interrupted: it goes on; " +
			"or give it up with `table drop`", true
	case errors.Is(err, percolator.ErrDiskFull), RefusedWith(err, pb.Error_CODE_DISK_FULL):
		return percolator.Advice(percolator.ErrDiskFull), true
	case d.NoQuorum && (refused || d.Late):
		return "the node runs, but not enough of the nodes that this needs do, " +
			"or it does not reach them: `status` and `node ls` tell what it knows; --timeout " +
			"waits longer", true
	case d.Answered && d.Late:
		return "the node runs, but this was not answered within --timeout: allow more, or ask for less; `doctor` " +
			"says whether something is wrong", true
	case d.Answered && refused:
		return "the node runs, but a part of the cluster that this needs did not serve it: try again; `doctor` " +
			"says whether something is wrong", true
	case d.Late:
		return "is the node up? `status` asks it; --timeout waits longer", true
	case refused, status.Code(rootCause(err)) == codes.Unavailable:
		return percolator.Advice(percolator.ErrUnavailable), true
	case is(syscall.EADDRINUSE):
		return "another process listens there: stop it, or give --listen (and " +
			"--peer, --gossip, --http) another port; port 0 picks free ones", false
	case is(rpc.ErrOtherService):
		return "--addr is a node's --listen address; the port after it is for " +
			"other nodes", cannotServe(err)
	case errors.Is(err, percolator.ErrOverloaded):
		return percolator.Advice(err), true
	}
	// The advice that programs get for the error. The error is an outage only if there is no such
	// advice and a node has answered that it cannot serve.
	hint = percolator.Advice(err)
	return hint, hint == "" && cannotServe(err)
}

// RefusedWith reports whether a node refused with the code.
func RefusedWith(err error, code pb.Error_Code) bool {
	var refused *txn.ServerError
	return errors.As(err, &refused) && refused.Code == code
}

// cannotServe reports whether a node refused an administrative request because it cannot serve.
func cannotServe(err error) bool {
	if refused, ok := errors.AsType[*txn.ServerError](err); ok {
		switch refused.Code {
		case pb.Error_CODE_UNAVAILABLE, pb.Error_CODE_NOT_LEADER, pb.Error_CODE_OVERLOADED:
			return true
		}
	}
	return false
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

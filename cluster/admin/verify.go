package admin

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
)

// Comparison of replicas. Each replica of the tablet computes and keeps its own result.

const (
	// verifyTimeout limits VerifyTablet, including all rounds.
	verifyTimeout = time.Minute
	verifyAgain   = 100 * time.Millisecond // pause between two requests to one replica
	// verifyAttempt limits one request: by then a hanging node counts as dead, and
	// is skipped.
	verifyAttempt = 5 * time.Second
	// verifyBegin limits the search for the leader: an election takes about a second.
	verifyBegin    = 10 * time.Second
	verifyProposes = 3 // maximum attempts to request a checksum while the tablet changes or moves
	// verifyRounds is the maximum number of checksums requested while some replica will never
	// have the result of the last one.
	verifyRounds = 6
	verifyPause  = 100 * time.Millisecond // pause before the second round; doubles each time
)

var (
	errAway       = coded.New("admin", "its node is down or unreachable")
	errNoChecksum = coded.New("admin", "the replica did not compute the checksum in time")
	// errPassed reports that a snapshot has moved the replica past the entry, or that it was
	// restarted or overloaded with checksums.
	errPassed = coded.New("admin", "the replica is past the entry and has no checksum of it")
)

// VerifyTablet implements pb.AdminServer. The leader makes every replica compute the checksum of
// its contents as of one entry of the log; then each is asked for its result. If a replica is
// past the entry without a result, another checksum is started, up to verifyRounds in all.
func (s *Service) VerifyTablet(ctx context.Context,
	req *pb.VerifyTabletRequest) (*pb.VerifyTabletResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	for round := 1; ; round++ {
		out, err := s.verifyOnce(ctx, req.TabletId)
		// Done, or failed in a way that another checksum cannot fix.
		if !errors.Is(err, errPassed) {
			return out, err
		}
		// The replica past the entry may be catching up by snapshots: wait longer each time. Out of
		// time: return the results so far, which show the replica without one.
		if round >= verifyRounds || txn.Sleep(ctx, verifyPause<<(round-1)) != nil {
			return out, nil
		}
	}
}

// verifyOnce requests one checksum, and then its result from every replica. It returns errPassed
// if there is a replica that will never have a result; it may not have waited for the others
// then.
func (s *Service) verifyOnce(ctx context.Context, tablet uint64) (*pb.VerifyTabletResponse, error) {
	beginning, cancel := context.WithTimeout(ctx, verifyBegin)
	defer cancel()
	d, began, err := s.beginVerify(beginning, tablet)
	if err != nil {
		return nil, err
	}
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	out := &pb.VerifyTabletResponse{Replicas: make([]*pb.ReplicaChecksum, len(d.Replicas))}
	var asking sync.WaitGroup
	for i, replica := range d.Replicas {
		asking.Go(func() {
			// Each goroutine writes its own element; Wait joins them.
			sum, err := s.checksumOf(ctx, replica.NodeId, tablet, began)
			out.Replicas[i] = &pb.ReplicaChecksum{NodeId: replica.NodeId, Result: sum}
			if err != nil {
				out.Replicas[i].Error = withoutResult(err)
			}
			if errors.Is(err, errPassed) {
				// This round has failed: do not wait for the others.
				enough(errPassed)
			}
		})
	}
	asking.Wait()
	if errors.Is(context.Cause(ctx), errPassed) {
		return out, errPassed
	}
	out.Equal = sameChecksums(out.Replicas)
	return out, nil
}

// withoutResult returns in a few words why a replica has no result, or a node no response.
func withoutResult(err error) string {
	switch {
	case errors.Is(err, peer.ErrCertificates):
		return "it and this node do not accept each other's certificates"
	case errors.Is(err, txn.ErrNotSent):
		return "its node is down or unreachable"
	case errors.Is(err, context.DeadlineExceeded):
		return "its node did not respond in time"
	}
	return coded.Text(err)
}

// sameChecksums reports whether every replica has a result and all are equal.
func sameChecksums(replicas []*pb.ReplicaChecksum) bool {
	for _, r := range replicas {
		// Entry and count must be equal too: checksums as of different entries are not comparable.
		first := replicas[0].Result
		if r.Result == nil || first == nil || r.Result.Checksum != first.Checksum ||
			r.Result.Entries != first.Entries ||
			r.Result.Index != first.Index {
			return false
		}
	}
	return len(replicas) > 0
}

// beginVerify requests a checksum from the leader. It returns the tablet with the replicas that
// compute it, and the checksum's id and entry.
func (s *Service) beginVerify(ctx context.Context,
	tablet uint64) (*pb.TabletDescriptor, *pb.ChecksumResponse, error) {
	for try := range verifyProposes {
		d, err := s.descriptor(ctx, tablet, try > 0)
		if err != nil {
			return nil, nil, err
		}
		req := &pb.TabletRequest{
			TabletId: tablet, Epoch: d.Epoch,
			Op: &pb.TabletRequest_Checksum{Checksum: &pb.ChecksumRequest{}},
		}
		r, err := s.cfg.Carrier.Send(ctx, d, req)
		// The leader accepted this descriptor by its epoch, so its replicas are those that
		// compute.
		if err == nil && r.GetError() == nil {
			return d, r.GetChecksum(), nil
		}
		// Otherwise retry with a refreshed map: the tablet may have moved.
		if try == verifyProposes-1 || ctx.Err() != nil {
			if err == nil {
				err = &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message}
			}
			return nil, nil, err
		}
	}
	return nil, nil, ctx.Err()
}

// checksumOf polls the node's replica until it has the result, is known never to have it
// (errPassed), or ctx ends; then it returns the last failure. A node considered dead is skipped:
// otherwise each of its tablets would wait for it.
func (s *Service) checksumOf(ctx context.Context, node, tablet uint64,
	began *pb.ChecksumResponse) (*pb.ChecksumResponse, error) {
	req := &pb.TabletRequest{
		TabletId: tablet, Op: &pb.TabletRequest_Checksum{
			Checksum: &pb.ChecksumRequest{Id: began.GetId()},
		},
	}
	var last error
	for {
		// Checked before each request, as the node may die between two.
		if _, alive := s.cfg.Members.Member(node); !alive && node != s.cfg.Self {
			return nil, errAway
		}
		attempt, cancel := context.WithTimeout(ctx, verifyAttempt)
		r, err := s.ask(attempt, node, req)
		cancel()
		switch {
		case err != nil:
			last = err
		// A rejection may be temporary, such as that of a starting replica.
		case r.GetError() != nil:
			last = errors.New(r.Error.Message)
		case r.GetChecksum().GetDone():
			return r.GetChecksum(), nil
		case passed(r.GetChecksum(), began):
			return nil, errPassed
		default:
			last = errNoChecksum
		}
		if txn.Sleep(ctx, verifyAgain) != nil {
			return nil, last
		}
	}
}

// passed reports whether a replica without a result will never have it: it has applied the entry
// and computes nothing.
func passed(have, began *pb.ChecksumResponse) bool {
	return have != nil && !have.Done && !have.Computing && began.GetIndex() != 0 &&
		have.Applied >= began.GetIndex()
}

package admin

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file compares replicas. It keeps nothing between calls: each replica of the tablet
// computes and keeps its own result.

const (
	// verifyPatience is how long replicas may take to apply the entry and to read what they
	// hold.
	verifyPatience = time.Minute
	verifyAgain    = 100 * time.Millisecond // between two questions to one replica
	// verifyAttempt bounds one question: a node that hangs is believed dead by then, and
	// is skipped.
	verifyAttempt = 5 * time.Second
	// verifyBegin bounds the search for the leader: an election takes about a second.
	verifyBegin    = 10 * time.Second
	verifyProposes = 3 // times, while the tablet changes or moves
	// verifyRounds is how many checksums are asked for, while there is a replica that
	// never has the result of the last one.
	verifyRounds = 6
	verifyPause  = 100 * time.Millisecond // before the second one; then twice as long each time
)

var (
	errAway       = coded.New("admin", "its node is away")
	errNoChecksum = coded.New("admin", "the replica has not computed the checksum in time")
	// errPassed reports that a snapshot has taken the replica past the entry, it was started
	// anew, or it had too much to compute.
	errPassed = coded.New("admin", "the replica is past the entry and has no checksum of it")
)

// VerifyTablet implements pb.AdminServer. The leader has every replica compute the checksum
// of what it holds as of one entry of the log; then each is asked for its result. If a
// replica is past the entry and has no result, another checksum is begun.
func (s *Service) VerifyTablet(ctx context.Context,
	req *pb.VerifyTabletRequest) (*pb.VerifyTabletResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyPatience)
	defer cancel()
	for round := 1; ; round++ {
		out, err := s.verifyOnce(ctx, req.TabletId)
		// Done, or failed in a way that another checksum does not help.
		if !errors.Is(err, errPassed) {
			return out, err
		}
		// The replica that was past the entry may be catching up by snapshots: give it
		// longer each time.
		// Out of time: answer with what there is, which says which replica it is.
		if round >= verifyRounds || txn.Sleep(ctx, verifyPause<<(round-1)) != nil {
			return out, nil
		}
	}
}

// verifyOnce asks for one checksum, and then every replica for its result. It returns
// errPassed if there is a replica that will never have its own; the others may not have
// been waited for then.
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
			// Each writes an element of its own; Wait joins them.
			sum, err := s.checksumOf(ctx, replica.NodeId, tablet, began)
			out.Replicas[i] = &pb.ReplicaChecksum{NodeId: replica.NodeId, Result: sum}
			if err != nil {
				out.Replicas[i].Error = withoutResult(err)
			}
			if errors.Is(err, errPassed) {
				// This round is lost: the others need not be waited for.
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

// withoutResult returns in a few words why a replica has no result.
func withoutResult(err error) string {
	switch {
	case errors.Is(err, txn.ErrNotSent):
		return "its node is away"
	case errors.Is(err, context.DeadlineExceeded):
		return "its node has not answered in time"
	}
	return coded.Text(err)
}

// sameChecksums reports whether every replica has a result, and all the same.
func sameChecksums(replicas []*pb.ReplicaChecksum) bool {
	for _, r := range replicas {
		// Of the same entry and with the same count, too: equal checksums of different
		// entries say nothing.
		first := replicas[0].Result
		if r.Result == nil || first == nil || r.Result.Checksum != first.Checksum ||
			r.Result.Entries != first.Entries ||
			r.Result.Index != first.Index {
			return false
		}
	}
	return len(replicas) > 0
}

// beginVerify asks the leader for a checksum. It returns the tablet with the replicas
// that compute it, and the checksum's id and entry.
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
		// The descriptor is the one that the leader accepted by its epoch, so its
		// replicas are those that compute.
		if err == nil && r.GetError() == nil {
			return d, r.GetChecksum(), nil
		}
		// Otherwise with a map that is read anew: the tablet may have moved.
		if try == verifyProposes-1 || ctx.Err() != nil {
			if err == nil {
				err = &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message}
			}
			return nil, nil, err
		}
	}
	return nil, nil, ctx.Err()
}

// checksumOf asks the node's replica until it has the result or is known never to have
// it. A node that is believed dead is skipped: it would be waited for once for each of
// its tablets.
func (s *Service) checksumOf(ctx context.Context, node, tablet uint64,
	began *pb.ChecksumResponse) (*pb.ChecksumResponse, error) {
	req := &pb.TabletRequest{
		TabletId: tablet, Op: &pb.TabletRequest_Checksum{
			Checksum: &pb.ChecksumRequest{Id: began.GetId()},
		},
	}
	var last error
	for {
		// Looked at before each question, as the node may die between two.
		if _, alive := s.cfg.Members.Member(node); !alive && node != s.cfg.Self {
			return nil, errAway
		}
		attempt, cancel := context.WithTimeout(ctx, verifyAttempt)
		r, err := s.ask(attempt, node, req)
		cancel()
		switch {
		case err != nil:
			last = err
		// A refusal may pass, as that of a replica that is being started.
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

// passed reports whether a replica that has no result will never have it: it has applied
// the entry and computes nothing.
func passed(have, began *pb.ChecksumResponse) bool {
	return have != nil && !have.Done && !have.Computing && began.GetIndex() != 0 &&
		have.Applied >= began.GetIndex()
}

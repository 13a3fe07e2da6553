package rpc

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Refusal of timestamps that the oracle has not allocated. There is no state; the checks run
// on the streams' workers, and Latest may wait for the oracle.

// maxLockTTL limits the expiry of a remote client's lock, from the oracle's time on. It exceeds
// every allowed configuration.
const maxLockTTL = time.Hour + time.Minute

// future checks the request's timestamps by the function future, against the latest one that the
// oracle is known to have allocated. It returns nil if the request is accepted or timestamps are
// not checked.
func (s *service) future(ctx context.Context, req *pb.TabletRequest) *pb.Error {
	if s.cfg.Latest == nil {
		return nil
	}
	subject := wire.SubjectOf(req)
	claim := mvcc.Timestamp(subject.Latest)
	if end := mvcc.Timestamp(subject.Expiry).Millis() - maxLockTTL.Milliseconds(); end > claim.Millis() {
		claim = mvcc.TimestampAt(end) // a valid expiry is at most maxLockTTL ahead of the oracle
	}
	// Query only for the request's timestamp: for a valid request the node usually knows that
	// it was allocated, without the oracle.
	latest, err := s.cfg.Latest(ctx, claim)
	if err != nil {
		return errorOf(pb.Error_CODE_UNAVAILABLE, "the oracle can't be asked about the request's timestamps: %v", err)
	}
	return future(req, latest)
}

// future returns an error if the request has timestamps above latest, or a lock's expiry more than
// maxLockTTL above it. A record or lock from the future could not be read, overwritten or removed
// until that time, and a false "now" would expire the locks of live transactions (design section 4,
// "Snapshots").
func future(req *pb.TabletRequest, latest mvcc.Timestamp) *pb.Error {
	subject := wire.SubjectOf(req)
	limit := mvcc.TimestampAt(latest.Millis() + maxLockTTL.Milliseconds())
	switch {
	case mvcc.Timestamp(subject.Latest) > latest:
		return errorOf(pb.Error_CODE_FUTURE, "timestamp %d: the oracle has given out none above %d",
			subject.Latest, latest)
	case latest < mvcc.MaxTimestamp && mvcc.Timestamp(subject.Expiry) > limit:
		return errorOf(pb.Error_CODE_FUTURE, "a lock may expire %v ahead of the oracle, not more", maxLockTTL)
	}
	return nil
}

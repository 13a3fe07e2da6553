package rpc

import (
	"context"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file refuses timestamps that the oracle has not given out. It keeps nothing; it
// runs on the streams' workers, and a call to Latest may wait for the oracle.

// maxLockTTL is how far ahead of the oracle a remote client's lock may expire: no
// configuration asks for more.
const maxLockTTL = time.Hour + time.Minute

// future is the function future with the latest timestamp that the oracle has given out,
// as far as the request makes it necessary to know. It returns nil if the request is not
// refused, or timestamps are not checked.
func (s *service) future(ctx context.Context, req *pb.TabletRequest) *pb.Error {
	if s.cfg.Latest == nil {
		return nil
	}
	subject := wire.SubjectOf(req)
	claim := mvcc.Timestamp(subject.Latest)
	if end := mvcc.Timestamp(subject.Expiry).Millis() - maxLockTTL.Milliseconds(); end > claim.Millis() {
		claim = mvcc.TimestampAt(end) // an expiry claims that the oracle has come so far
	}
	// Asked only as far as the claim goes: an ordinary request claims what has been given
	// out, which the node can tell without the oracle.
	latest, err := s.cfg.Latest(ctx, claim)
	if err != nil {
		return &pb.Error{
			Code:    pb.Error_CODE_UNAVAILABLE,
			Message: "the oracle can't be asked about the request's timestamps: " + err.Error(),
		}
	}
	return future(req, latest)
}

// future returns why a request is refused whose timestamps are above latest, nil if it is
// not. A record or lock from the future could not be read, written over or cleared until
// then, and a made-up "now" would let locks of the living expire (invariants 1 and 6 of
// design section 4).
func future(req *pb.TabletRequest, latest mvcc.Timestamp) *pb.Error {
	subject := wire.SubjectOf(req)
	limit := mvcc.TimestampAt(latest.Millis() + maxLockTTL.Milliseconds())
	switch {
	case mvcc.Timestamp(subject.Latest) > latest:
		return &pb.Error{
			Code: pb.Error_CODE_FUTURE, Message: fmt.Sprintf(
				"timestamp %d: the oracle has given out none above %d", subject.Latest, latest),
		}
	case latest < mvcc.MaxTimestamp && mvcc.Timestamp(subject.Expiry) > limit:
		return &pb.Error{
			Code: pb.Error_CODE_FUTURE, Message: fmt.Sprintf(
				"a lock may expire %v ahead of the oracle, not more", maxLockTTL),
		}
	}
	return nil
}

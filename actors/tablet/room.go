package tablet

import (
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file says what a replica does while its node's disk is full. Raft hands out what
// is to be written only once, so a writer keeps what the store refuses for want of room,
// and writes it when there is some. Until then the replica takes nothing on that would
// have to be written: a leader proposes nothing, and its group ignores appends, as if
// they were lost on the way, and tries to have another voter lead. The replica
// acknowledges nothing, and goes on reading. All of it runs on the tablet's goroutine.

// noRoom returns store.ErrDiskFull, wrapped, while nothing may be taken on that has to be
// written.
func noRoom(logs *writers.Pair, st *store.Store) error {
	if logs.Full() {
		return store.ErrDiskFull
	}
	return st.Exhausted()
}

// diskFullRetryMs is after how many milliseconds a client may ask again: another voter
// may lead by then.
const diskFullRetryMs = 250

// diskFull returns the answer to a write that there is no room for. Where another node
// could lead the tablet it says when to try again.
func diskFull(err error, single bool) *pb.TabletResponse {
	r := wire.Failure(pb.Error_CODE_DISK_FULL, "node takes no writes: %v", err)
	if !single {
		r.Error.RetryAfterMs = diskFullRetryMs
	}
	return r
}

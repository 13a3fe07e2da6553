package tablet

import (
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Behaviour of a replica while its node's store accepts no writes for lack of disk space or of
// another resource for files. Raft emits each write only once, so a writer retains the refused
// writes, and writes them when the store has room again. Until then the replica accepts nothing
// that would have to be written: a leader proposes nothing, and its group ignores appends, as if
// they were lost, and tries to transfer the leadership to another voter. The replica acknowledges
// nothing, and serves only reads whose index it has applied. All of it runs on the tablet's
// goroutine.

// noRoom returns an error that is store.ErrDiskFull while nothing may be accepted that would have
// to be written; otherwise nil.
func noRoom(logs *writers.Pair, st *store.Store) error {
	if logs.Full() {
		return store.ErrDiskFull
	}
	return st.Exhausted()
}

// diskFullRetryMs is the retry delay for clients, in milliseconds: another voter may lead by
// then.
const diskFullRetryMs = 250

// diskFull returns the answer to a write that the disk has no space for. It contains a retry
// delay if another node could lead the tablet.
func diskFull(node uint64, err error, single bool) *pb.TabletResponse {
	r := wire.Failure(pb.Error_CODE_DISK_FULL, "node %d accepts no writes: %v", node, err)
	if !single {
		r.Error.RetryAfterMs = diskFullRetryMs
	}
	return r
}

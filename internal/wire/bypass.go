package wire

import pb "github.com/percolator-go/percolator/api/percolator/v1"

// Bypasses reports whether the operation is one that a full tablet must still take, so
// that it can finish and clean up (design section 5): its caller sends it past the queue
// limit.
func Bypasses(req *pb.TabletRequest) bool {
	switch req.Op.(type) {
	case *pb.TabletRequest_Commit, *pb.TabletRequest_Rollback, *pb.TabletRequest_ResolveLock, *pb.TabletRequest_Heartbeat,
		*pb.TabletRequest_CheckTxnStatus, *pb.TabletRequest_Mark, *pb.TabletRequest_ClearNotify, *pb.TabletRequest_Status,
		*pb.TabletRequest_Collect, *pb.TabletRequest_SetCatalogue, *pb.TabletRequest_ChangeReplicas,
		*pb.TabletRequest_TransferLeader, *pb.TabletRequest_Checksum:
		return true
	}
	return false
}

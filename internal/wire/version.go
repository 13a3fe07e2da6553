package wire

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/version"
)

// Messages of versions, and the versions required by operations.

// VersionsPB converts a range.
func VersionsPB(r version.Range) *pb.BuildVersions {
	return &pb.BuildVersions{Oldest: uint32(r.Oldest), Newest: uint32(r.Newest)}
}

// Versions converts a range. v may be nil.
func Versions(v *pb.BuildVersions) version.Range {
	return version.RangeOf(v.GetOldest(), v.GetNewest())
}

// AgreedPB converts a cluster's agreed version.
func AgreedPB(a version.Agreed) *pb.ClusterVersion {
	return &pb.ClusterVersion{Minimum: uint32(a.Minimum), Active: uint32(a.Active)}
}

// Agreed converts a cluster's agreed version. v may be nil.
func Agreed(v *pb.ClusterVersion) version.Agreed {
	return version.AgreedOf(v.GetMinimum(), v.GetActive())
}

// AsyncCommitsActive reports whether, by the cluster's policy, every node supports asynchronous
// commits.
func AsyncCommitsActive(p *pb.Policy) bool {
	return Agreed(p.GetAgreed()).Active >= version.AsyncCommits.Since
}

// FeatureOf returns the feature that every node must support before the request may be sent.
// Most requests need none, which is the zero Feature.
func FeatureOf(req *pb.TabletRequest) version.Feature {
	switch op := req.GetOp().(type) {
	case *pb.TabletRequest_Scan:
		if op.Scan.GetRecords() {
			return version.Backups
		}
	case *pb.TabletRequest_Restore:
		return version.Backups
	case *pb.TabletRequest_Merge:
		return version.Merges
	case *pb.TabletRequest_ClearNotify:
		if len(op.ClearNotify.GetCells()) > 0 {
			return version.Batches
		}
	case *pb.TabletRequest_Prewrite:
		if op.Prewrite.GetAsync() {
			return version.AsyncCommits
		}
		return featureOfWrites(op.Prewrite.GetWrites())
	case *pb.TabletRequest_OnePhase:
		return featureOfWrites(op.OnePhase.GetWrites())
	case *pb.TabletRequest_Pending:
		if op.Pending.GetEffects() != nil {
			return version.Origins
		}
	}
	return version.Feature{}
}

// featureOfWrites returns Locks if a write is a lock, and Timers if one sets a timer. Both
// have the same version number, so it returns the first one found.
func featureOfWrites(writes []*pb.CellWrite) version.Feature {
	for _, w := range writes {
		switch {
		case w.GetKind() == pb.Kind_KIND_LOCK:
			return version.Locks
		case mvcc.TableID(w.GetCell().GetTable()) == mvcc.TimerTable:
			return version.Timers
		}
	}
	return version.Feature{}
}

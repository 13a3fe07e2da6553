package wire

import pb "github.com/percolator-go/percolator/api/percolator/v1"

// BackfillRuns reports whether the back-fill has rows left, was not canceled and has not failed.
// It returns false for nil.
func BackfillRuns(b *pb.Backfill) bool {
	return b != nil && !b.Done && !b.Cancelled && b.Error == ""
}

package wire

import (
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// from separates the holder's name from its origin.
const from = " from "

// WithOrigin returns the name of a holder of history that is a remote client at origin. The
// serving node appends the origin, so that the client cannot choose it.
func WithOrigin(holder, origin string) string { return holder + from + origin }

// Origin is the inverse of WithOrigin. Holders in nodes have no origin.
func Origin(holder string) (name, origin string) {
	if i := strings.LastIndex(holder, from); i >= 0 {
		return holder[:i], holder[i+len(from):]
	}
	return holder, ""
}

// BackupHolds returns the leases held for backups, without their tokens.
func BackupHolds(leases *Leases) (out []*pb.BackupHold) {
	for _, l := range leases.GetLeases() {
		if l.Backup {
			out = append(out, &pb.BackupHold{Backup: l.Holder, At: l.Oldest, By: l.By})
		}
	}
	return out
}

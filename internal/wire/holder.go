package wire

import (
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// from stands before the origin in the name of who holds history.
const from = " from "

// WithOrigin is the name of a holder of history that has come over the network from
// origin, which is put behind it by the node that serves it: what a client says of itself
// does not count.
func WithOrigin(holder, origin string) string { return holder + from + origin }

// Origin takes WithOrigin apart. The nodes' own holders have no origin.
func Origin(holder string) (name, origin string) {
	if i := strings.LastIndex(holder, from); i >= 0 {
		return holder[:i], holder[i+len(from):]
	}
	return holder, ""
}

// BackupHolds returns those of the leases that are for backups, without their tokens.
func BackupHolds(leases *Leases) (out []*pb.BackupHold) {
	for _, l := range leases.GetLeases() {
		if l.Backup {
			out = append(out, &pb.BackupHold{Backup: l.Holder, At: l.Oldest, By: l.By})
		}
	}
	return out
}

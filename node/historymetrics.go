package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// How far the collection of history has come, and the room on the node's disk.
//
// The bound and the safepoint are this node's own: the lowest of its replicas. What
// blocks collection, and the leases, only the collector knows, which runs where meta is
// led. Garbage and collected entries belong to a tablet's leader; its followers send 0,
// so that a sum over all nodes counts each tablet once. A new leader counts from 0, and
// so does one whose tablet was split.
var (
	historyBound = gaugeFamily("history_bound_age_seconds",
		"Age of the bound below which reads are refused, the oldest of all tablets; 0: none yet.")
	historySafepoint = gaugeFamily("history_safepoint_age_seconds",
		"Age of the safepoint below which history is collected, the oldest of all tablets; 0: none yet.")
	historyBlocked = gaugeFamily("history_blocked",
		"1 while something keeps the bound or its confirmation back, on the node that leads meta.")
	historyHolds = gaugeFamily("history_holds", "Leases that are in force.")
	historyHeld  = gaugeFamily("history_oldest_hold_age_seconds",
		"Age of the oldest timestamp that a lease holds.")
	historyGarbage = gaugeFamily("history_garbage_entries",
		"About how many entries wait to be collected.", "tablet")
	historyCollected = counterFamily("history_collected_total", "Entries deleted by collection.",
		"tablet")

	diskFree    = gaugeFamily("disk_free_bytes", "Free space of the node's file system.")
	diskUsed    = gaugeFamily("disk_used_bytes", "Space that the node's directory takes.")
	diskDamaged = gaugeFamily("disk_damaged",
		"1 once the node's store was found damaged: it serves nothing any more.")
	diskBlocked = gaugeFamily("disk_write_blocked",
		"1 while the node takes no writes for want of space.")
)

// collectHistory exports how far collection has come, and the room on the disk.
// Everything was gathered with the status: the used space, which takes a walk through the
// node's directory, was too.
func (m exporter) collectHistory(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	h := status.History
	send(out, historyBound, m.age(h.GetBound()).Seconds())
	send(out, historySafepoint, m.age(h.GetSafepoint()).Seconds())
	// Only the node that leads meta can tell, since collection runs there.
	send(out, historyBlocked, oneIf(h.GetBlockedBy() != "" && h.GetBlockedBy() != leaderKnows))
	send(out, historyHolds, h.GetHolds())
	send(out, historyHeld, m.age(h.GetOldestHold()).Seconds())
	for _, t := range status.Tablets {
		id := strconv.FormatUint(t.GetTablet().GetTabletId(), 10)
		send(out, historyGarbage, t.Garbage, id)
		send(out, historyCollected, t.Collected, id)
	}
	// A store in memory has no disk. Zeros would read as a full one.
	if !m.status.cfg.Store.InMemory {
		send(out, diskFree, status.DiskFree)
		send(out, diskUsed, status.DiskUsed)
		send(out, diskBlocked, oneIf(status.WriteBlocked != ""))
		send(out, diskDamaged, oneIf(status.Damaged != ""))
	}
}

package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/exposition"
)

// Raft on this node: which replicas it has, and how far behind their leader those are
// whose tablets it leads. These come from the replicas' statuses: a replica at rest is
// not woken, since its last status still holds; one that does not answer in time is
// missing from the sums too. The histograms, and the count of leaderships, are shared by
// all replicas.
var (
	raftReplicas = gaugeFamily("raft_replicas", "Replicas that run on this node.")
	raftLeaders  = gaugeFamily("raft_leaders", "Of these, those that lead their tablet.")
	raftResting  = gaugeFamily("raft_resting_replicas",
		"Of these, those at rest: nothing happens in their group.")
	raftLed = counterFamily("raft_leaderships_total",
		"How often a replica here has come to lead its tablet.")
	raftLag = gaugeFamily("raft_lag_entries",
		"Entries that the furthest replica of a tablet lacks; 0: this node does not lead it.", "tablet")
	raftUnheard = gaugeFamily("raft_unheard_replicas",
		"Replicas of a tablet that its leader has not heard of lately; 0: this node does not lead it.",
		"tablet")
	raftApplyLag = gaugeFamily("raft_unapplied_entries",
		"Entries in the log of a replica here that are not applied.", "tablet")
	raftWrites = histogramFamily("raft_entry_seconds",
		"Time from an entry's proposal until a quorum has it and its effects are visible.")
	raftEntries = histogramFamily("raft_entry_mutations",
		"Mutations that share an entry of the log.")
)

// collectRaft exports what the node's replicas say of their groups.
func (m exporter) collectRaft(out chan<- prometheus.Metric, tablets []*pb.StatusResponse) {
	var leaders, resting int
	// One loop for all: a tablet's status has been asked for once in this scrape.
	for _, t := range tablets {
		id := strconv.FormatUint(t.GetTablet().GetTabletId(), 10)
		// What stays unapplied shows that the store is slower than the log.
		send(out, raftApplyLag, t.LastIndex-min(t.AppliedIndex, t.LastIndex), id)
		// A replica at rest keeps its leader: it counts as leading too, below.
		if t.Quiescent {
			resting++
		}
		if t.Leader {
			leaders++
		}
		// A follower knows nothing of the others' progress: Replicas is empty, and both
		// stay 0, so that the series do not end whenever the leadership moves.
		var lag uint64
		unheard := 0
		for _, r := range t.Replicas {
			lag = max(lag, t.LastIndex-min(r.Match, t.LastIndex))
			if !r.Active && !t.Quiescent { // nobody is asked at rest
				unheard++
			}
		}
		send(out, raftLag, lag, id)
		send(out, raftUnheard, unheard, id)
	}
	send(out, raftReplicas, len(tablets))
	send(out, raftLeaders, leaders)
	send(out, raftResting, resting)
	// All replicas of the process observe the same histograms: labels by tablet would be a
	// thousand series for each bucket.
	measured := &m.tablets.metrics
	send(out, raftLed, measured.Led.Load())
	exposition.SendHistogram(out, raftWrites, measured.Writes.Read())
	exposition.SendHistogram(out, raftEntries, measured.Entries.Read())
}

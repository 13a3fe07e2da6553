package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The oracle counts on the node that issues the timestamps: the leader of meta.
var oracleTable = table[*pb.NodeStatusResponse]{
	counter("oracle_timestamps_total", "Timestamps issued.", (*pb.NodeStatusResponse).GetOracleServed),
	counter("oracle_batches_total", "Batches in which timestamps were issued.",
		(*pb.NodeStatusResponse).GetOracleBatches),
}

// replica is the status of one replica. A quiescent replica is not woken: its last status still
// holds. A replica that does not answer in time is missing from the scrape and from the sums.
// Counters begin at 0 when the replica is opened. Figures of locks are the leader's; followers
// export 0.
type replica struct {
	*pb.StatusResponse
	oldestLock time.Duration
}

// lag returns the number of entries that the replica furthest behind lacks, and the number of
// replicas without a recent message to the leader, 0 for a quiescent group; zeros for a follower,
// which does not know the progress of others.
func (r replica) lag() (entries uint64, unheard int) {
	for _, other := range r.Replicas {
		entries = max(entries, r.LastIndex-min(other.Match, r.LastIndex))
		if !other.Active && !r.Quiescent { // a quiescent group exchanges no messages
			unheard++
		}
	}
	return entries, unheard
}

var replicaTable = table[replica]{
	counter("tablet_reads_total", "Reads.", replica.GetReads, "tablet"),
	counter("tablet_mutations_total", "Mutations, including repeated evaluations.",
		replica.GetMutations, "tablet"),
	counter("tablet_batches_total", "Batches of reads and mutations.", replica.GetBatches, "tablet"),
	counter("tablet_proposals_total", "Raft entries proposed.", replica.GetProposals, "tablet"),
	gauge("tablet_locks", "Locks and reservations held.", replica.GetLocks, "tablet"),
	gauge("tablet_oldest_lock_seconds",
		"Age of the transaction with the oldest lock among the first thousand locks of a tablet led here; 0 without locks.",
		func(r replica) float64 { return r.oldestLock.Seconds() }, "tablet"),
	// The first entry of an empty log is the one after its last.
	gauge("tablet_log_entries", "Entries in the Raft log.",
		func(r replica) uint64 { return r.LastIndex + 1 - min(r.FirstIndex, r.LastIndex+1) }, "tablet"),
	gauge("raft_lag_entries",
		"Entries that the furthest replica of a tablet led here lacks; 0 elsewhere.",
		func(r replica) uint64 { lag, _ := r.lag(); return lag }, "tablet"),
	gauge("raft_unheard_replicas",
		"Replicas of a tablet led here from which the leader has not heard lately; 0 elsewhere.",
		func(r replica) int { _, unheard := r.lag(); return unheard }, "tablet"),
	gauge("raft_unapplied_entries", "Entries in the log of a replica here that are not applied.",
		func(r replica) uint64 { return r.LastIndex - min(r.AppliedIndex, r.LastIndex) }, "tablet"),
	// A tablet's leader counts these; a new leader counts from 0, and so does one whose tablet
	// was split.
	gauge("history_garbage_entries", "Estimated number of entries that wait for collection.",
		replica.GetGarbage, "tablet"),
	counter("history_collected_total", "Entries deleted by collection.", replica.GetCollected, "tablet"),
}

// group counts the replicas of the node.
type group struct {
	replicas, leaders, resting int
	leaderless                 int
	longest                    int64 // longest time for which a replica has known no leader, in milliseconds
}

var groupTable = table[group]{
	gauge("raft_replicas", "Replicas on this node.", func(g group) int { return g.replicas }),
	gauge("raft_leaders", "Replicas that lead their tablet.", func(g group) int { return g.leaders }),
	gauge("raft_resting_replicas", "Quiescent replicas: their group exchanges no messages.",
		func(g group) int { return g.resting }),
	gauge("tablets_leaderless", "Tablets with a replica here that knows of no leader.",
		func(g group) int { return g.leaderless }),
	gauge("tablets_leaderless_longest_seconds", "Longest time for which a replica here has known of no leader.",
		func(g group) float64 { return millis(g.longest).Seconds() }),
}

// All replicas of the process observe the same histograms: a label for each tablet would mean
// a thousand series for each bucket.
var measuredTable = table[*tablet.Metrics]{
	counter("raft_leaderships_total", "Times that a replica here has become leader.",
		func(m *tablet.Metrics) uint64 { return m.Led.Load() }),
	counter("lease_reads_total", "Batches of reads that a leader among several voters served under its lease.",
		func(m *tablet.Metrics) uint64 { return m.LeaseReads.Load() }),
	counter("lease_quorum_reads_total", "Batches of reads for which a leader among several voters asked the others.",
		func(m *tablet.Metrics) uint64 { return m.QuorumReads.Load() }),
	histogram("raft_entry_seconds",
		"Time from the proposal of an entry until a quorum has it and its effects are visible.",
		func(m *tablet.Metrics) metrics.Histogram { return m.Writes.Read() }),
	histogram("raft_entry_mutations", "Mutations in an entry of the log.",
		func(m *tablet.Metrics) metrics.Histogram { return m.Entries.Read() }),
	histogram("tablet_read_seconds", "Time to answer the reads of a batch once their index is visible.",
		func(m *tablet.Metrics) metrics.Histogram { return m.Reads.Read() }),
	counter("feed_answers_total",
		"Answers to requests for changes. A subscriber sends about five a second for each idle tablet.",
		func(m *tablet.Metrics) uint64 { return m.Feed.Answers.Load() }),
	counter("feed_changes_total",
		"Changes in answers to requests for changes. What a subscriber scans to begin or to catch up is not included.",
		func(m *tablet.Metrics) uint64 { return m.Feed.Changes.Load() }),
	counter("feed_sent_bytes_total", "Size of the rows and values of the changes in answers to requests for changes.",
		func(m *tablet.Metrics) uint64 { return m.Feed.Bytes.Load() }),
	histogram("feed_lag_seconds", "Time from the resolved timestamp of an answer to the timestamp of its read.",
		func(m *tablet.Metrics) metrics.Histogram { return m.Feed.Lag.Read() }),
}

// collectTablets exports the replicas of the node.
func (e *Exporter) collectTablets(out chan<- prometheus.Metric, tablets []*pb.StatusResponse) {
	sum := group{replicas: len(tablets)}
	for _, t := range tablets {
		replicaTable.send(out, replica{t, e.age(t.OldestLockTs)},
			strconv.FormatUint(t.GetTablet().GetTabletId(), 10))
		if t.Quiescent {
			sum.resting++
		}
		if t.Leader { // a quiescent leader counts too
			sum.leaders++
		}
		// Each replica counts its own ticks without a leader.
		if t.LeaderlessMs > 0 {
			sum.leaderless++
			sum.longest = max(sum.longest, t.LeaderlessMs)
		}
	}
	groupTable.send(out, sum)
	measuredTable.send(out, e.Tablets.Measured)
}

// quorum is this node's view of meta's quorum. Its series exist whatever the state of the other
// nodes, so that alerts can rely on them.
//
// Gathering the status requests an answer from meta with a short timeout, so a scrape shows meta as
// it is now rather than at the last probe.
type quorum struct {
	up     bool
	age    time.Duration // of meta's last answer, or since the start
	known  int           // tablets
	ofMost float64
}

var quorumTable = table[quorum]{
	gauge("meta_up", "1 while meta answers this node: meta has a quorum that the node reaches.",
		func(q quorum) float64 { return oneIf(q.up) }),
	gauge("meta_answer_age_seconds",
		"Time since meta's last answer to this node, or since the node's start.",
		func(q quorum) float64 { return q.age.Seconds() }),
	gauge("tablets_known", "Tablets of users' tables in this node's tablet map.",
		func(q quorum) int { return q.known }),
	gauge("tablets_limit_ratio",
		"tablets_known divided by split-max-tablets; at 1 tables can be neither created nor split.",
		func(q quorum) float64 { return q.ofMost }),
}

// collectQuorum exports whether meta answers, and the number of tablets.
func (e *Exporter) collectQuorum(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	q := quorum{up: true} // a node that runs alone leads meta itself
	if s := status.GetMeta(); s != nil {
		q.up, q.age = s.Error == "", millis(s.AnsweredAgoMs)
		if s.AnsweredAgoMs < 0 { // meta has never answered
			q.age = time.Since(e.Started)
		}
	}
	for _, d := range e.Router.All() {
		if wire.StartOf(d).Table >= mvcc.FirstUserTable {
			q.known++
		}
	}
	q.ofMost = float64(q.known) / float64(e.Policy.Now().GetSplitMaxTablets())
	quorumTable.send(out, q)
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

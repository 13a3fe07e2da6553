package node

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/exposition"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/hosting"
)

// exporter is what the node exports: read from the parts' own counters and histograms
// when it is asked for (ADR 0033). Names are percolator_<subsystem>_<thing>_<unit>;
// docs/reference/metrics.md lists them.
//
// It owns nothing. What it reads is there once the node serves: nobody collects before.
// Collect runs on a goroutine of whoever scrapes, several at once, and may wait a second
// for tablets, and another for meta. The families of one part are in a file of their own,
// beside the function that sends them; the comment there says what they are taken from.
type exporter struct {
	status    *statuses
	observers *hosting.Host
	tablets   *tablets
	peerNodes *cluster.PeerNodes
	peers     *peer.Peers    // nil: the node runs alone
	remote    *remoting.Link // nil: peers use another link
	oracles   *route.Oracles
	client    *txn.Client
	servers   *servers
	lockd     *atomic.Pointer[lockd.Lockd]
}

// The oracle counts on whichever node issues the timestamps: the leader of meta.
//
// A tablet's figures come from its replica, which answers for its status in its own turn.
// A replica that does not answer in time is missing from this scrape, and its series end
// until the next. Counters begin at 0 when the replica is opened, also when it is opened
// anew in the same process. Those of locks are the leader's; followers send 0.
var (
	oracleServed  = counterFamily("oracle_timestamps_total", "Timestamps given out.")
	oracleBatches = counterFamily("oracle_batches_total", "Batches that they were given out in.")

	tabletReads     = counterFamily("tablet_reads_total", "Reads.", "tablet")
	tabletMutations = counterFamily("tablet_mutations_total",
		"Mutations, evaluated again ones included.", "tablet")
	tabletBatches   = counterFamily("tablet_batches_total", "Batches that both came in.", "tablet")
	tabletProposals = counterFamily("tablet_proposals_total", "Raft entries proposed.", "tablet")
	tabletLocks     = gaugeFamily("tablet_locks", "Locks and reservations held.", "tablet")
	tabletOldest    = gaugeFamily("tablet_oldest_lock_seconds",
		"Age of the transaction with the oldest lock, of a tablet that this node leads, among its first thousand locks; 0: there is none.",
		"tablet")
	tabletLogLength = gaugeFamily("tablet_log_entries", "Entries in the Raft log.", "tablet")
)

// age returns how long ago the timestamp was issued; 0 for none. The newest timestamp
// seen counts as the present if it is ahead of this node's clock.
func (m exporter) age(ts uint64) time.Duration {
	if ts == 0 {
		return 0
	}
	now := max(m.oracles.Seen().Millis(), time.Now().UnixMilli())
	return max(0, time.Duration(now-mvcc.Timestamp(ts).Millis())*time.Millisecond)
}

// Describe implements prometheus.Collector.
func (m exporter) Describe(out chan<- *prometheus.Desc) {
	for _, f := range families {
		out <- f.Desc
	}
}

// Collect implements prometheus.Collector. It gathers the node's status once, for all
// families that are in it, and reads the rest from the parts. The order matters in one
// place: collectMembers goes by what collectPlacement has kept or forgotten.
func (m exporter) Collect(out chan<- prometheus.Metric) {
	// Prometheus hands over no context; get bounds its own waits. After an error the
	// status has what could be gathered in time.
	status, _ := m.status.get(context.Background(), false)
	send(out, oracleServed, status.OracleServed)
	send(out, oracleBatches, status.OracleBatches)
	for _, t := range status.Tablets {
		id := strconv.FormatUint(t.GetTablet().GetTabletId(), 10)
		send(out, tabletReads, t.Reads, id)
		send(out, tabletMutations, t.Mutations, id)
		send(out, tabletBatches, t.Batches, id)
		send(out, tabletProposals, t.Proposals, id)
		send(out, tabletLocks, t.Locks, id)
		send(out, tabletOldest, m.age(t.OldestLockTs).Seconds(), id)
		// The first entry of an empty log is the one after its last.
		send(out, tabletLogLength, t.LastIndex+1-min(t.FirstIndex, t.LastIndex+1), id)
	}
	m.collectQuorum(out, status)
	m.collectTablets(out)
	m.collectCerts(out, status)
	m.collectLog(out, status)
	m.collectHistory(out, status)
	m.collectPlacement(out, status.Placement)
	m.collectTimers(out, &m.status.jobs.timers)
	m.collectBackups(out)
	m.collectObservers(out, status.Observers)
	m.collectCluster(out)
	exposition.Transactions(out, m.client)
	m.collectRaft(out, status.Tablets)
	m.collectMailboxes(out)
	m.collectStore(out)
	m.collectClients(out)
	m.collectMembers(out)
}

// gatherer returns what one scrape reads: the node's metrics, Go's and the process's. It
// is made anew for each scrape: the exporter copies fields that open has not set yet when
// HTTP opens.
func (n *Node) gatherer() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(exporter{
		n.status, n.observers, n.tablets, n.peerNodes, n.peers, n.remote, n.oracles, n.client, n.servers, &n.lockd,
	})
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

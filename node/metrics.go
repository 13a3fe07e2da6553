package node

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// metrics is what the node exports: read from the actors' own counters when it is asked
// for, so that counting costs the hot paths nothing more. Names are
// percolator_<subsystem>_<thing>_<unit>.
//
// It owns nothing. What it reads is there once the node serves: nobody collects before.
// Collect runs on a goroutine of whoever scrapes, several at once, and may wait a second
// for tablets, and another for meta. Each family is in a file of its own, beside the
// function that sends it: what the family is of is said there.
type metrics struct {
	status    *statuses
	observers *observers
	tablets   *tablets
	others    *others
	oracles   *route.Oracles
}

// family is a metric's description and kind.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counterFamily(name, help string, labels ...string) family {
	return family{
		prometheus.NewDesc("percolator_"+name, help, labels, nil), prometheus.CounterValue,
	}
}

func gaugeFamily(name, help string, labels ...string) family {
	return family{prometheus.NewDesc("percolator_"+name, help, labels, nil), prometheus.GaugeValue}
}

var (
	oracleServed  = counterFamily("oracle_timestamps_total", "Timestamps given out.")
	oracleBatches = counterFamily("oracle_batches_total", "Batches that they were given out in.")
	logCommits    = counterFamily("log_commits_total", "Synced writes to the Raft log.")
	logRequests   = counterFamily("log_requests_total", "Appends that they held.")

	tabletReads     = counterFamily("tablet_reads_total", "Reads.", "tablet")
	tabletMutations = counterFamily("tablet_mutations_total",
		"Mutations, evaluated again ones included.", "tablet")
	tabletBatches   = counterFamily("tablet_batches_total", "Batches that both came in.", "tablet")
	tabletProposals = counterFamily("tablet_proposals_total", "Raft entries proposed.", "tablet")
	tabletLocks     = gaugeFamily("tablet_locks", "Locks and reservations held.", "tablet")
	tabletLogLength = gaugeFamily("tablet_log_entries", "Entries in the Raft log.", "tablet")
)

// age returns how long ago the timestamp was issued; 0 for none. The newest timestamp
// seen counts as the present if it is ahead of this node's clock.
func (m metrics) age(ts uint64) time.Duration {
	if ts == 0 {
		return 0
	}
	now := max(m.oracles.Seen().Millis(), time.Now().UnixMilli())
	return max(0, time.Duration(now-mvcc.Timestamp(ts).Millis())*time.Millisecond)
}

// Describe sends nothing: which tablets and observers there are changes.
func (m metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m metrics) Collect(out chan<- prometheus.Metric) {
	send := func(f family, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(value), labels...)
	}
	status, _ := m.status.get(context.Background(), false) // what could be gathered in time
	send(oracleServed, status.OracleServed)
	send(oracleBatches, status.OracleBatches)
	send(logCommits, status.LogBatches)
	send(logRequests, status.LogRequests)
	for _, t := range status.Tablets {
		id := strconv.FormatUint(t.GetTablet().GetTabletId(), 10)
		send(tabletReads, t.Reads, id)
		send(tabletMutations, t.Mutations, id)
		send(tabletBatches, t.Batches, id)
		send(tabletProposals, t.Proposals, id)
		send(tabletLocks, t.Locks, id)
		send(tabletLogLength, t.LastIndex-min(t.FirstIndex, t.LastIndex), id)
	}
	m.collectQuorum(out, status)
	m.collectCerts(out, status)
	m.collectLog(out, status.Log)
	m.collectHistory(out, status)
	m.collectPlacement(out, status.Placement)
	m.collectObservers(out, status.Observers)
	m.collectCluster(out)
}

// gatherer returns what one scrape reads: the node's metrics, Go's and the process's.
func (n *Node) gatherer() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics{n.status, n.observers, n.tablets, n.others, n.oracles},
		collectors.NewGoCollector(), collectors.NewProcessCollector(
			collectors.ProcessCollectorOpts{}))
	return r
}

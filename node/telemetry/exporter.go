package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/internal/exposition"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Exporter exports the metrics of a node, read from the counters and histograms of its parts at
// each scrape. It owns placement's last figures. Collect runs on the goroutine of a scrape, several
// at once; it may wait a second for tablets' statuses, and another for the notifications that wait
// for observers.
type Exporter struct {
	Sources

	placement admin.LastAnswer[*pb.PlacementStatus]
}

// NewExporter returns an Exporter of the sources. It must not be collected before the node serves.
func NewExporter(s Sources) *Exporter { return &Exporter{Sources: s} }

// Gatherer returns the metrics of the node, of Go and of the process.
func (e *Exporter) Gatherer() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(e, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Describe implements prometheus.Collector.
func (e *Exporter) Describe(out chan<- *prometheus.Desc) {
	for _, f := range families {
		out <- f.Desc
	}
}

// Collect implements prometheus.Collector. It gathers the status of the node once. The order
// matters in one place: collectMembers depends on what collectPlacement keeps.
func (e *Exporter) Collect(out chan<- prometheus.Metric) {
	status := e.Status()
	oracleTable.send(out, status)
	e.collectTablets(out, status.Tablets)
	e.collectQuorum(out, status)
	e.collectCerts(out, status)
	e.collectDisk(out, status)
	e.collectHistory(out, status)
	e.collectPlacement(out, status.Placement)
	timersTable.send(out, e.Jobs.Timers())
	e.collectExpiry(out)
	e.collectBackups(out)
	e.collectObservers(out, status.Observers)
	e.collectCluster(out)
	exposition.Transactions(out, e.Client)
	e.collectMailboxes(out)
	e.collectClients(out)
	e.collectMembers(out)
}

// age returns the time since the timestamp was issued, or 0 for none. If the newest timestamp seen
// is ahead of this node's clock, age counts up to that timestamp.
func (e *Exporter) age(ts uint64) time.Duration {
	if ts == 0 {
		return 0
	}
	now := max(e.Oracles.Seen().Millis(), time.Now().UnixMilli())
	return max(0, time.Duration(now-mvcc.Timestamp(ts).Millis())*time.Millisecond)
}

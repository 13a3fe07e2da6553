// Package exposition converts counters and histograms to Prometheus metrics, and defines the
// metrics of transactions, which both nodes and programs with a client export. Package
// node/telemetry defines those of nodes. It has no state.
package exposition

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Family is the description of a metric and its labels.
type Family struct {
	Desc       *prometheus.Desc
	Kind       prometheus.ValueType // of a histogram: untyped
	Name, Help string
	Labels     []string
}

// New returns the family of the metric percolator_<name>.
func New(kind prometheus.ValueType, name, help string, labels []string) Family {
	name = "percolator_" + name
	return Family{prometheus.NewDesc(name, help, labels, nil), kind, name, help, labels}
}

// SendHistogram sends a histogram. It converts the buckets to Prometheus's cumulative ones.
// Values above the last bound are only in the count, from which Prometheus derives the +Inf
// bucket.
func SendHistogram(out chan<- prometheus.Metric, f Family, h metrics.Histogram,
	labels ...string) {
	buckets, below := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		below += h.Counts[i]
		buckets[bound] = below
	}
	out <- prometheus.MustNewConstHistogram(f.Desc, h.Count(), h.Sum, buckets, labels...)
}

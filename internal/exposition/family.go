// Package exposition is how figures become Prometheus's metrics, and has those that both a
// node and a program with a client export: of transactions. Package node declares its own
// beside them. A crash can't concern it.
package exposition

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Family is a metric: what Prometheus is told of it, and its labels.
type Family struct {
	Desc       *prometheus.Desc
	Kind       prometheus.ValueType // of a histogram: untyped
	Name, Help string
	Labels     []string
}

// New returns the family of percolator_ and name.
func New(kind prometheus.ValueType, name, help string, labels []string) Family {
	name = "percolator_" + name
	return Family{prometheus.NewDesc(name, help, labels, nil), kind, name, help, labels}
}

// SendHistogram sends a histogram. Here each bucket counts what fell into it; Prometheus
// wants in each what is at or below its bound. What is above the last bound is in the
// count alone, of which Prometheus makes the bucket without a bound.
func SendHistogram(out chan<- prometheus.Metric, f Family, h metrics.Histogram,
	labels ...string) {
	buckets, below := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		below += h.Counts[i]
		buckets[bound] = below
	}
	out <- prometheus.MustNewConstHistogram(f.Desc, h.Count(), h.Sum, buckets, labels...)
}

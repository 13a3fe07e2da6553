package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/metrics"
)

// This file is how the node's metrics are declared and sent. A family is declared once,
// as a variable of the file that sends it. families and the reference that is made of it
// follow; what a family is declared with is all that is said of it.

// family is a metric: what Prometheus is told of it, and its labels.
type family struct {
	desc       *prometheus.Desc
	kind       prometheus.ValueType // of a histogram: untyped
	name, help string
	labels     []string
}

// families are all that a node exports. They are complete once this package's variables
// are initialized, and do not change after that.
var families []family

func declare(kind prometheus.ValueType, name, help string, labels []string) family {
	f := family{
		prometheus.NewDesc("percolator_"+name, help, labels, nil), kind, "percolator_" + name, help,
		labels,
	}
	families = append(families, f)
	return f
}

func counterFamily(name, help string, labels ...string) family {
	return declare(prometheus.CounterValue, name, help, labels)
}

func gaugeFamily(name, help string, labels ...string) family {
	return declare(prometheus.GaugeValue, name, help, labels)
}

func histogramFamily(name, help string, labels ...string) family {
	return declare(prometheus.UntypedValue, name, help, labels)
}

// send sends one value of a counter or a gauge. The labels are in the order in which the
// family declares them; it panics if they are more or fewer.
func send[N int | int64 | uint32 | uint64 | float64](out chan<- prometheus.Metric, f family,
	value N, labels ...string) {
	out <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(value), labels...)
}

// sendHistogram sends a histogram. Here each bucket counts what fell into it; Prometheus
// wants in each what is at or below its bound. What is above the last bound is in the
// count alone, of which Prometheus makes the bucket without a bound.
func sendHistogram(out chan<- prometheus.Metric, f family, h metrics.Histogram,
	labels ...string) {
	buckets, below := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		below += h.Counts[i]
		buckets[bound] = below
	}
	out <- prometheus.MustNewConstHistogram(f.desc, h.Count(), h.Sum, buckets, labels...)
}

// oneIf returns yes as a metric's value.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

package node

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/exposition"
)

// This file is how the node's metrics are declared and sent; those of transactions, which
// other programs export too, are in internal/exposition. A family is declared once,
// as a variable of the file that sends it. families and the reference that is made of it
// follow; what a family is declared with is all that is said of it.

// families are all that a node exports. They are complete once this package's variables
// are initialized, and do not change after that.
var families = slices.Clone(exposition.TxnFamilies)

func declare(kind prometheus.ValueType, name, help string, labels []string) exposition.Family {
	f := exposition.New(kind, name, help, labels)
	families = append(families, f)
	return f
}

func counterFamily(name, help string, labels ...string) exposition.Family {
	return declare(prometheus.CounterValue, name, help, labels)
}

func gaugeFamily(name, help string, labels ...string) exposition.Family {
	return declare(prometheus.GaugeValue, name, help, labels)
}

func histogramFamily(name, help string, labels ...string) exposition.Family {
	return declare(prometheus.UntypedValue, name, help, labels)
}

// send sends one value of a counter or a gauge. The labels are in the order in which the
// family declares them; it panics if they are more or fewer.
func send[N int | int64 | uint32 | uint64 | float64](out chan<- prometheus.Metric, f exposition.Family,
	value N, labels ...string) {
	out <- prometheus.MustNewConstMetric(f.Desc, f.Kind, float64(value), labels...)
}

// oneIf returns yes as a metric's value.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

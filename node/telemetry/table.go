package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/exposition"
	"github.com/percolator-go/percolator/internal/metrics"
)

// families are all declared metrics. They are appended while the variables of the package are
// initialized, and do not change after that.
var families = slices.Clone(exposition.TxnFamilies)

// Families returns all metrics that a node declares.
func Families() []exposition.Family { return slices.Clone(families) }

// table contains the metrics read from one source of type S.
type table[S any] []row[S]

// row sends one metric of a source. The labels are in the order of the declaration.
type row[S any] func(out chan<- prometheus.Metric, source S, labels ...string)

// send sends all metrics of the table.
func (t table[S]) send(out chan<- prometheus.Metric, source S, labels ...string) {
	for _, row := range t {
		row(out, source, labels...)
	}
}

// number is the type of a value.
type number interface {
	int | int64 | uint32 | uint64 | float64
}

// counter declares a counter, whose name ends in _total.
func counter[S any, N number](name, help string, read func(S) N, labels ...string) row[S] {
	return value(declare(prometheus.CounterValue, name, help, labels), read)
}

// gauge declares a gauge.
func gauge[S any, N number](name, help string, read func(S) N, labels ...string) row[S] {
	return value(declare(prometheus.GaugeValue, name, help, labels), read)
}

// histogram declares a histogram.
func histogram[S any](name, help string, read func(S) metrics.Histogram,
	labels ...string) row[S] {
	f := declare(prometheus.UntypedValue, name, help, labels)
	return func(out chan<- prometheus.Metric, source S, labels ...string) {
		exposition.SendHistogram(out, f, read(source), labels...)
	}
}

func value[S any, N number](f exposition.Family, read func(S) N) row[S] {
	return func(out chan<- prometheus.Metric, source S, labels ...string) {
		out <- prometheus.MustNewConstMetric(f.Desc, f.Kind, float64(read(source)), labels...)
	}
}

func declare(kind prometheus.ValueType, name, help string, labels []string) exposition.Family {
	f := exposition.New(kind, name, help, labels)
	families = append(families, f)
	return f
}

// the returns its argument: it is the source of a metric whose value is passed directly.
func the[N any](v N) N { return v }

// oneIf returns 1 for true and 0 for false.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

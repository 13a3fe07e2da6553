// Package exposition converts counters and histograms to Prometheus metrics, and defines the
// metrics of transactions, which both nodes and programs with a client export. Package
// node/telemetry defines those of nodes. It has no state.
package exposition

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/counters"
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

// Metrics of a client's transactions. They are not read atomically and may be a few events
// apart. A transaction's latency and outcome are counted when it ends: a running one is only
// in txn_begun_total.
var (
	txnSeconds = txnHistogram("txn_seconds",
		"Transaction latency, from begin to end. Each retry counts separately.",
		"kind", "outcome")
	txnStepSeconds = txnHistogram("txn_step_seconds",
		"Time that transactions wait for a timestamp (excluding those available at once), "+
			"for all prewrites, and for the commit of the primary.", "step")
	txnNamed = txnCounter("txn_named_total",
		"Transactions with a name that ended, observers' among them; "+
			"conflict: also those that met a live lock.", "name", "outcome")
	txnNamedLatency = txnHistogram("txn_named_seconds",
		"Transaction latency by name, each retry counted separately; only "+
			"the first 64 names.", "name", "outcome")
	txnNamedSeconds = txnCounter("txn_named_seconds_total",
		"Total latency of the transactions of a name.", "name")
	txnBegun   = txnCounter("txn_begun_total", "Transactions begun, including retries.")
	txnRetries = txnCounter("txn_retries_total", "Retries of transactions.")
	txnSettled = txnCounter("txn_settled_total",
		"Commits that were settled by a rollback at the primary: their reply was lost, or they were given up.")
	txnRolledBack = txnCounter("txn_rolled_back_total",
		"Transactions that had begun to prewrite and were rolled back.")
	txnLeft = txnCounter("txn_secondaries_left_total",
		"Commits in the background that failed: whoever meets their locks resolves them.")
	txnBackground = txnGauge("txn_background",
		"Commits and rollbacks that go on in the background.")
	txnLocksMet = txnCounter("txn_locks_met_total",
		"Locks of other transactions that blocked reads or commits.")
	txnResolved = txnCounter("txn_locks_resolved_total",
		"Locks of ended transactions that were resolved.", "decision")
	txnTimestamps  = txnCounter("txn_timestamps_total", "Timestamps received from the oracle.")
	txnTimestampRq = txnCounter("txn_timestamp_requests_total",
		"Requests for timestamps; each serves all waiting transactions.")
	txnTimestampsRefused = txnCounter("txn_timestamps_refused_total",
		"Timestamps from the oracle that were not above all earlier ones. Must be 0.")
	txnPrefetched   = txnCounter("txn_prefetched_total", "Cells prefetched.")
	txnPrefetchUsed = txnCounter("txn_prefetched_used_total",
		"Prefetched cells that were read later.")
	txnMessages = txnCounter("txn_messages_total",
		"Messages to tablets, including repetitions.", "operation")
	txnMapMisses = txnCounter("txn_map_misses_total",
		"Requests to meta for the tablet map.")
)

// Transactions sends the metrics of the client's transactions.
func Transactions(out chan<- prometheus.Metric, client *txn.Client) {
	latencies, s := client.Latencies(), client.Stats()
	// A combination of kind and outcome has a series from its first transaction on. Commits and
	// unknown outcomes always have one, because alerts use it.
	for kind, outcomes := range latencies.Whole {
		for outcome, h := range outcomes {
			SendHistogram(out, txnSeconds, h, kind.String(), outcome.String())
		}
	}
	for step, h := range latencies.Steps {
		SendHistogram(out, txnStepSeconds, h, step.String())
	}
	// Programs choose the names. The client limits the number of names and does not count
	// transactions with further ones.
	for name, n := range s.ByName {
		send(out, txnNamed, n.Committed, name, counters.Committed.String())
		send(out, txnNamed, n.Conflicts, name, counters.Conflicted.String())
		send(out, txnNamed, n.Failed, name, counters.Failed.String())
		send(out, txnNamedSeconds, n.Seconds, name)
		for outcome, h := range latencies.ByName[name] {
			SendHistogram(out, txnNamedLatency, h, name, outcome.String())
		}
	}
	send(out, txnBegun, s.Begun)
	send(out, txnRetries, s.Retries)
	send(out, txnSettled, s.Settled)
	send(out, txnRolledBack, s.RolledBack)
	send(out, txnLeft, s.Secondaries)
	send(out, txnBackground, s.InBackground)
	send(out, txnLocksMet, s.LocksMet)
	// By the outcome of the transaction that left the lock.
	send(out, txnResolved, s.RolledForward, "committed")
	send(out, txnResolved, s.RolledBackIn, "rolled_back")
	send(out, txnTimestamps, s.Timestamps)
	send(out, txnTimestampRq, s.TimestampRequests)
	send(out, txnTimestampsRefused, s.TimestampsRefused)
	send(out, txnPrefetched, s.PrefetchAsked)
	send(out, txnPrefetchUsed, s.PrefetchUsed)
	for operation, n := range s.Messages {
		send(out, txnMessages, n, operation)
	}
	send(out, txnMapMisses, s.MapMisses)
}

// TxnFamilies are the families that Transactions sends. The list is complete after the
// initialization of this package's variables and does not change.
var TxnFamilies []Family

func txnFamily(kind prometheus.ValueType, name, help string, labels []string) Family {
	f := New(kind, name, help, labels)
	TxnFamilies = append(TxnFamilies, f)
	return f
}

func txnCounter(name, help string, labels ...string) Family {
	return txnFamily(prometheus.CounterValue, name, help, labels)
}

func txnGauge(name, help string, labels ...string) Family {
	return txnFamily(prometheus.GaugeValue, name, help, labels)
}

func txnHistogram(name, help string, labels ...string) Family {
	return txnFamily(prometheus.UntypedValue, name, help, labels)
}

func send[N uint64 | float64](out chan<- prometheus.Metric, f Family, value N, labels ...string) {
	out <- prometheus.MustNewConstMetric(f.Desc, f.Kind, float64(value), labels...)
}

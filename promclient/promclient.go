// Package promclient exports the transactions of a client program as Prometheus metrics,
// under the names that nodes use for their own (percolator_txn_…, listed in
// docs/reference/metrics.md). It is separate from package percolator, so that programs
// without Prometheus do not link the Prometheus client.
//
// The package keeps no state: it reads the counters of the DB, which start when the DB is
// opened.
package promclient

import (
	"github.com/prometheus/client_golang/prometheus"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/exposition"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
)

// Collector returns a collector of the transaction metrics of db: count and duration (in
// seconds) by kind, outcome and name (percolator.Name), conflicts, and encountered locks.
// Collecting sends no request and takes no lock for which transactions wait. After db.Close
// the collector reports the last values.
//
// A registry accepts the collector of one DB. For several, give each a label with
// prometheus.WrapRegistererWith. A node exports the metrics of its own DB.
func Collector(db *percolator.DB) prometheus.Collector { return collector{handle.Client(db)} }

// collector reads the counters of a client on each Collect.
type collector struct{ client *txn.Client }

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range exposition.TxnFamilies {
		out <- f.Desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) { exposition.Transactions(out, c.client) }

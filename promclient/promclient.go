// Package promclient exports the transactions of a program that uses package percolator as
// Prometheus metrics, under the names that nodes use for their own (percolator_txn_…, listed
// in docs/reference/metrics.md). It is apart, so that programs without Prometheus do not
// link its client.
//
// It keeps nothing: the figures are those of the DB, since that was opened.
package promclient

import (
	"github.com/prometheus/client_golang/prometheus"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/exposition"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
)

// Collector returns a collector of what the transactions of db have done: how many, how
// long they took by their kind, outcome and name (percolator.Name), conflicts, locks met.
// Collecting costs no request and no lock that a transaction waits for. Times are in
// seconds. After db.Close it goes on with the last figures.
//
// A registry takes one DB of a process. For several, give each a label of its own by
// prometheus.WrapRegistererWith. The DB of a node needs none: the node exports it.
func Collector(db *percolator.DB) prometheus.Collector { return collector{handle.Client(db)} }

// collector is a client whose figures are read when somebody asks.
type collector struct{ client *txn.Client }

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range exposition.TxnFamilies {
		out <- f.Desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) { exposition.Transactions(out, c.client) }

package tpce

import (
	"context"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

// brokerObserver adds commissions to their brokers.
const brokerObserver = "broker"

// aggregated is the number of commissions that one transaction adds.
const aggregated = 200

// Main runs a node and does not return if this process was started as one: the nodes of the
// measurements are processes of the measuring program, with its observer.
func Main() { cluster.Main(observe) }

func observe(r *percolator.Registry) {
	// One run at a time on each node: the commissions of one broker lie in one tablet, whose
	// notifications go to one node, so that runs rarely conflict on a broker's total.
	r.StrongBatch(brokerObserver, commissionColumn, aggregate, percolator.Batch(aggregated),
		percolator.Concurrency(1))
}

// aggregate adds the commissions of some trades to the totals of their brokers. The acknowledgment
// in the same transaction guarantees that each is added once.
func aggregate(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	var keys []percolator.CellKey
	for i, n := range changes { // ordered by row, and so by broker
		if i == 0 || brokerOf(n.Row) != brokerOf(changes[i-1].Row) {
			keys = append(keys, key(brokerOf(n.Row), brokerColumn))
		}
	}
	brokers := len(keys)
	for _, n := range changes {
		keys = append(keys, key(n.Row, commissionColumn))
	}
	cells, err := get(ctx, tx, keys...)
	if err != nil {
		return err
	}
	totals := map[string]brokerTotals{}
	for i, c := range cells {
		var one brokerTotals
		if i < brokers {
			err = decode(c.Value, &one.trades, &one.commission)
		} else {
			one.trades = 1
			err = decode(c.Value, &one.commission)
		}
		if err != nil {
			return err
		}
		broker := brokerOf(c.Row)
		sum := totals[broker]
		totals[broker] = brokerTotals{sum.trades + one.trades, sum.commission + one.commission}
	}
	for _, c := range cells[:brokers] {
		sum := totals[c.Row]
		tx.Set(c.Row, brokerColumn, encode(sum.trades, sum.commission))
	}
	return nil
}

// brokerOf returns the broker's row that a row of the table brokerage begins with.
func brokerOf(row string) string { return row[:len(brokerRow(0))] }

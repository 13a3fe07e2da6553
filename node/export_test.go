package node

import (
	"context"

	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/telemetry"
)

// Metrics returns the exported counters and gauges by name, summed over their labels; a histogram
// is 0.
func (n *Node) Metrics() (map[string]float64, error) {
	families, err := n.exporter.Gatherer().Gather()
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out, err
}

// MetricNames returns the names of all metrics that a node declares.
func MetricNames() (names []string) {
	for _, f := range telemetry.Families() {
		names = append(names, f.Name)
	}
	return names
}

// LeadingStatus returns the node's status without the tablets that it does not lead: most of
// placement's requests are for this.
func (n *Node) LeadingStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return n.status.get(ctx, true)
}

// Scans returns the statistics of the node's scanners.
func (n *Node) Scans() *scanner.Stats {
	if s := n.observers.Scans(); s != nil {
		return s
	}
	return &scanner.Stats{}
}

// VerifyStore verifies all tables of the node's store.
func (n *Node) VerifyStore() error { return n.store.Verify() }

// Checkpoint makes all applied entries durable.
func (n *Node) Checkpoint() error { return n.store.Checkpoint() }

// Ready returns the result of /readyz.
func (n *Node) Ready() error { return n.ready(context.Background()) }

// RetireUnheard retires an observer and removes its entry before any node has read the retirement.
func (n *Node) RetireUnheard(ctx context.Context, name string) error {
	if _, err := n.meta.Observers.ControlObserver(ctx,
		&pb.ControlObserverRequest{Name: name, Retire: true}); err != nil {
		return err
	}
	return n.meta.Observers.ForgetObserver(ctx, name)
}

// Agree makes meta record the cluster's version without notifying a node, as when the node that
// finalises an upgrade is killed in between.
func (n *Node) Agree(ctx context.Context, a version.Agreed) error {
	_, err := n.meta.Policy.Agree(ctx, a)
	return err
}

package node

import (
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// Exported by the node that leads meta, and by the one that led it last while nobody is
// known to: with the last figures, whose age grows. Alerts on them so survive the loss of
// meta's quorum, which is when they matter most.
//
// The figures are as of placement's last turn, read from memory. Its counters begin at 0
// whenever the job is started: with each leadership of meta, and after a change of
// policy.
var (
	placementAge = gaugeFamily("placement_figures_age_seconds",
		"Age of placement's figures: meta has no leader while it grows.")
	placementTarget = gaugeFamily("placement_target_replicas",
		"Replicas that each tablet ought to have, as nodes allow.")
	placementUnder = gaugeFamily("placement_under_replicated_tablets",
		"Tablets with fewer voters on live nodes.")
	placementChanging = gaugeFamily("placement_changing_tablets",
		"Tablets whose replicas are being changed.")
	placementOrders = gaugeFamily("placement_orders",
		"Moves that an operator has ordered and that are not done.")
	placementBlocked = gaugeFamily("placement_blocked", "Changes that can't go on.")
	placementMoves   = counterFamily("placement_moves_total",
		"Replicas moved or added since this node leads meta.")
	placementLeaders = counterFamily("placement_transfers_total",
		"Leaders moved since this node leads meta.")
	placementFailures = counterFamily("placement_failures_total",
		"Turns of placement that failed since this node leads meta.")
)

// collectPlacement exports placement's figures, s, or the last ones while nobody is known
// to lead meta. They are forgotten once another node leads it.
func (m exporter) collectPlacement(out chan<- prometheus.Metric, s *pb.PlacementStatus) {
	last := &m.status.placement
	// With nobody known to lead meta, the last figures stay, and their age grows.
	if leader := m.status.router.Leader(cluster.MetaTablet); s != nil {
		last.Set(s)
	} else if leader != 0 && leader != m.status.self.NodeID {
		last.Forget()
	}
	s, age, ok := last.Get()
	if !ok {
		return
	}
	send(out, placementAge, age.Seconds())
	send(out, placementTarget, s.Target)
	send(out, placementUnder, s.UnderReplicated)
	send(out, placementChanging, s.Changing)
	send(out, placementOrders, s.Orders)
	send(out, placementBlocked, len(s.Blocked))
	send(out, placementMoves, s.Moves)
	send(out, placementLeaders, s.Transfers)
	send(out, placementFailures, s.Failures)
}

package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/actors/expirer"
	"github.com/percolator-go/percolator/actors/timers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// LeaderKnows is the reason that a node which does not lead meta gives for not collecting
// history: the leader knows the actual reason.
const LeaderKnows = "the node that leads meta knows"

// CollectionOff is the reason for not collecting history while the cluster's policy has collection
// off.
const CollectionOff = "collection is off"

// history is the progress of the collection of history. The bound and the safepoint are the lowest
// of this node's replicas. Only the collector, which runs on meta's leader, knows the leases and
// what blocks collection.
type history struct {
	*pb.HistoryStatus
	bound, safepoint, held time.Duration
}

var historyTable = table[history]{
	gauge("history_bound_age_seconds",
		"Age of the bound below which reads are refused, the oldest of all tablets; 0 before the first.",
		func(h history) float64 { return h.bound.Seconds() }),
	gauge("history_safepoint_age_seconds",
		"Age of the safepoint below which history is collected, the oldest of all tablets; 0 before the first.",
		func(h history) float64 { return h.safepoint.Seconds() }),
	gauge("history_blocked",
		"1 while the bound or its confirmation cannot advance although collection is on. Only the node that leads meta exports 1.",
		func(h history) float64 {
			why := h.GetBlockedBy()
			return oneIf(why != "" && why != LeaderKnows && why != CollectionOff)
		}),
	gauge("history_holds", "Leases in force.", func(h history) uint32 { return h.GetHolds() }),
	gauge("history_oldest_hold_age_seconds", "Age of the oldest timestamp that a lease holds.",
		func(h history) float64 { return h.held.Seconds() }),
}

// collectHistory exports the progress of collection.
func (e *Exporter) collectHistory(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	h := status.GetHistory()
	historyTable.send(out, history{
		h, e.age(h.GetBound()), e.age(h.GetSafepoint()), e.age(h.GetOldestHold()),
	})
}

// placement is the status of the job as of its last turn. Its counters begin at 0 when the job
// starts: with each leadership of meta, and after a change of the policy.
type placement struct {
	*pb.PlacementStatus
	age time.Duration
}

var placementTable = table[placement]{
	gauge("placement_figures_age_seconds",
		"Age of placement's figures. It grows while meta has no leader.",
		func(p placement) float64 { return p.age.Seconds() }),
	gauge("placement_target_replicas", "Target number of replicas of each tablet with the present nodes.",
		func(p placement) uint32 { return p.Target }),
	gauge("placement_under_replicated_tablets", "Tablets with fewer voters on live nodes than the target.",
		func(p placement) uint32 { return p.UnderReplicated }),
	gauge("placement_changing_tablets", "Tablets whose replicas are being changed.",
		func(p placement) uint32 { return p.Changing }),
	gauge("placement_orders", "Moves ordered by an operator that are not done.",
		func(p placement) uint32 { return p.Orders }),
	gauge("placement_blocked", "Changes that cannot continue.",
		func(p placement) int { return len(p.Blocked) }),
	counter("placement_moves_total",
		"Replicas moved or added since this node leads meta, or since the policy changed.",
		func(p placement) uint64 { return p.Moves }),
	counter("placement_transfers_total",
		"Leaders moved since this node leads meta, or since the policy changed.",
		func(p placement) uint64 { return p.Transfers }),
	counter("placement_failures_total",
		"Turns of placement that failed since this node leads meta, or since the policy changed.",
		func(p placement) uint64 { return p.Failures }),
}

// collectPlacement exports s, placement's figures, or if s is nil the last ones, so that alerts on
// them survive the loss of meta's quorum. It forgets them once another node leads meta.
func (e *Exporter) collectPlacement(out chan<- prometheus.Metric, s *pb.PlacementStatus) {
	if leader := e.Router.Leader(cluster.MetaTablet); s != nil {
		e.placement.Set(s)
	} else if leader != 0 && leader != e.Self {
		e.placement.Forget()
	}
	if s, age, ok := e.placement.Get(); ok {
		placementTable.send(out, placement{s, age})
	}
}

// All timers jobs that this process has run count here, so that counters do not go back when
// the leadership goes and returns. On a node that does not lead meta nothing is pending.
var timersTable = table[*timers.Stats]{
	counter("timers_fired_total", "Durable timers that have notified their rows.",
		func(s *timers.Stats) uint64 { return s.Fired.Load() }),
	counter("timers_dropped_total", "Durable timers dropped: malformed, of a cell over the node's limits, or of a column without a weak observer.",
		func(s *timers.Stats) uint64 { return s.Dropped.Load() }),
	counter("timers_moved_total",
		"Durable timers set again, because they were found too early or no node served their row.",
		func(s *timers.Stats) uint64 { return s.Moved.Load() }),
	gauge("timers_lag_seconds", "Delay of the durable timer that fired last.",
		func(s *timers.Stats) float64 { return millis(s.Lag.Load()).Seconds() }),
	gauge("timers_pending",
		"Durable timers that wait, counted at most once a minute and up to 10,000. Only the node that leads meta exports a number.",
		func(s *timers.Stats) float64 { return float64(s.Pending.Load()) }),
}

// expiry is the state of the expiry of cells. Its counters are those of all jobs of this process.
type expiry struct {
	*expirer.Stats
	lag, excess time.Duration
}

var expiryTable = table[expiry]{
	counter("expired_cells_total", "Cells deleted because they had reached their table's age of expiry.",
		func(e expiry) uint64 { return e.Deleted.Load() }),
	counter("expiry_passes_total", "Complete searches of a table for expired cells.",
		func(e expiry) uint64 { return e.Passes.Load() }),
	gauge("expiry_lag_seconds",
		"How long the oldest expired cell has been due, at most. Only the node that leads meta exports a number.",
		func(e expiry) float64 { return e.lag.Seconds() }),
	gauge("expiry_excess_lag_seconds",
		"By how much the lag of a rule exceeds the time between two searches, the worst of all rules. Only the node that leads meta exports a number.",
		func(e expiry) float64 { return e.excess.Seconds() }),
}

// collectExpiry exports the state of the expiry.
func (e *Exporter) collectExpiry(out chan<- prometheus.Metric) {
	x := expiry{Stats: e.Jobs.Expired()}
	for _, r := range e.Jobs.Expiry().GetRules() {
		x.lag = max(x.lag, millis(int64(r.LagMs)))
		x.excess = max(x.excess, millis(int64(r.LagMs)-int64(r.ToleratedMs)))
	}
	expiryTable.send(out, x)
}

// The schedules of backups, as the node that leads meta has last read them.
var backupTable = table[*pb.BackupSchedule]{
	gauge("backup_last_success_timestamp_seconds",
		"Time of the newest backup of a schedule, in seconds since the Unix epoch; before the first backup, the time at which it is due. Only the node that leads meta exports it.",
		func(s *pb.BackupSchedule) float64 {
			return float64(max(s.SuccessUnixMs, s.FirstUnixMs)) / 1000
		}, "schedule"),
	gauge("backup_interval_seconds",
		"Time between two backups of a schedule. Only the node that leads meta exports it.",
		func(s *pb.BackupSchedule) float64 { return float64(s.EveryMs) / 1000 }, "schedule"),
	gauge("backup_failing",
		"1 if the last attempt to make a backup of a schedule, or to remove old ones, failed. Only the node that leads meta exports it.",
		func(s *pb.BackupSchedule) float64 { return oneIf(s.Error != "" || s.PruneError != "") },
		"schedule"),
}

// collectBackups exports the schedules.
func (e *Exporter) collectBackups(out chan<- prometheus.Metric) {
	for _, s := range e.Jobs.Schedules() {
		backupTable.send(out, s, s.Name)
	}
}

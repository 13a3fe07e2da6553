package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/actors/timers"
)

// What the job that fires durable timers has done here. It runs where meta is led; elsewhere
// the figures stay as they are, and nothing is pending.
var (
	timersFired = counterFamily("timers_fired_total",
		"Durable timers that have notified their rows.")
	timersDropped = counterFamily("timers_dropped_total",
		"Durable timers that were due after their observer had gone.")
	timersMoved = counterFamily("timers_moved_total",
		"Durable timers that were set anew, because they were found too early or nobody served their row.")
	timersLag = gaugeFamily("timers_lag_seconds",
		"How late the durable timer that has fired last was.")
	timersPending = gaugeFamily("timers_pending",
		"Durable timers that wait, on the node that leads meta: counted at most once a minute, up to 10,000.")
)

// collectTimers exports the figures of the timers' jobs. They are atomics of all jobs that
// this process has run, one after another, so counters do not go back when the leadership
// goes and comes.
func (m exporter) collectTimers(out chan<- prometheus.Metric, s *timers.Stats) {
	send(out, timersFired, s.Fired.Load())
	send(out, timersDropped, s.Dropped.Load())
	send(out, timersMoved, s.Moved.Load())
	send(out, timersLag, float64(s.Lag.Load())/1000)
	send(out, timersPending, float64(s.Pending.Load()))
}

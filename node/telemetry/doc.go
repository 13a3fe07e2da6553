// Package telemetry reads the counters and histograms of a node's parts: as metrics for
// Prometheus (Exporter), and as the last hour for the console (Window). Metrics are named
// percolator_<subsystem>_<thing>_<unit>; docs/reference/metrics.md lists them. A table has a
// row for each metric of one source: its name, its help and how to read it.
//
// Invariants:
//  1. Reading sends no message to an actor, but for the statuses of tablets (ADR 0033), what waits
//     for observers, and the observers that are linked.
//  2. No series has a label of unbounded values.
//
// Called by: package node on goroutines of scrapes, of the console and of other nodes'
// requests; Window.Run on a goroutine of the node's background. A crash resets all counters
// and loses the last hour.
package telemetry

// Package metrics counts what operators want to see of how long things take and how many
// go together: histograms, as small types that whoever owns the subject holds and calls.
//
// It knows no exporter and imports nothing of this module, so that tablets, stores and the
// library that remote programs link may use it. Package node turns what it reads into
// Prometheus's form, and has the names (docs/reference/metrics.md). Counters that are no
// histograms are plain atomics of their owners, as everywhere.
//
// Invariants:
//  1. The zero value of each type is ready, and empty.
//  2. Observe allocates nothing, takes no lock and never waits: two atomic additions.
//     Where even the clock is too much, owners observe once for a batch.
//  3. A Histogram that was read may lack observations that were made meanwhile, and its
//     Sum may have some that its Counts lack. It never loses any.
//
// A crash forgets all counts, as Prometheus expects of a process that starts anew.
package metrics

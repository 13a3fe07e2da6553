// Package metrics implements histograms of durations and sizes for operators. The component
// that is measured owns and updates them.
//
// It has no exporter and imports nothing of this module, so that tablets, stores and the
// client library may use it. Package node/telemetry exports the readings to Prometheus and defines
// the names (docs/reference/metrics.md). Counters that are not histograms are plain atomics in
// their owners.
//
// Invariants:
//  1. The zero value of each type is empty and ready to use.
//  2. Observe does not allocate, lock or block: it makes two atomic additions. Where even
//     reading the clock is too expensive, owners observe once per batch.
//  3. A reading may lack concurrent observations, and its Sum may include some that its Counts
//     lack. No observation is ever lost.
//
// A crash resets all counts, as Prometheus expects after a restart.
package metrics

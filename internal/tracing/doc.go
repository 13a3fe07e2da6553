// Package tracing creates OpenTelemetry spans for transactions and the observer runs that they
// cause, and propagates the trace between them. It uses only the OpenTelemetry API: the given
// TracerProvider decides where spans go.
//
// The provider decides at the root whether a trace is sampled. Roots are transactions without
// a span in their context, and observer runs for a change without a known trace. Below an
// unsampled root each operation costs a comparison with nil and allocates nothing: the methods
// of a nil *Tracer, *Span or *Book do nothing.
//
// # Invariants
//
//  1. Spans contain no rows, values or error texts. They contain tables, columns, observers,
//     timestamps and outcomes, by which `percolator trace` finds the rest.
//  2. Nothing depends on a trace: one that is lost, forged or of another version only affects
//     spans.
//  3. A Book is bounded. It evicts the oldest entries.
//
// Called by: internal/txn (spans of transactions), actors/tablet (of operations; fills the
// Book), actors/observer (of runs; reads the Book), actors/scanner, actors/oracle, worker, node,
// and what passes requests on (internal/rpc, cluster/route, internal/gateway). A crash loses spans
// that were not exported, and the Book except for the part of the Raft log that is replayed.
package tracing

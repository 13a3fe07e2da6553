// Package tracing makes spans of OpenTelemetry for what a transaction and the observers
// that it sets off do, and carries the trace from one to the other. It knows the API of
// OpenTelemetry alone: who gives it a TracerProvider decides what becomes of the spans.
//
// Whether a trace is sampled is decided at its root, by the provider: a transaction
// without a span in its context, or a run of an observer for a change that belongs to no
// trace that is known. What is below a root that is not sampled costs a comparison with
// nil and allocates nothing: a nil *Tracer, *Span or *Book is one that does nothing.
//
// # Invariants
//
//  1. No row, column value or error text is in a span: tables, columns, observers,
//     timestamps and outcomes are, so that `percolator trace` finds the rest.
//  2. Nothing depends on a trace: one that is lost, forged or of another version changes
//     what spans say, and nothing else.
//  3. A Book is bounded. It forgets what it has had for longest.
//
// Called by: internal/txn (spans of transactions), actors/tablet (of operations; fills the
// Book), actors/observer (of runs; reads the Book), actors/scanner, node. A crash forgets
// spans that were not exported, and the Book but for what the Raft log is read again for.
package tracing

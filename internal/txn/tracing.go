package txn

import (
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn/counters"
)

// Spans of transactions. They are used on the transaction's goroutines. Without tracing spans
// are nil, and each call is one comparison.

// Span names. Those of tablets and observers are in their packages.
const (
	spanTransaction = "percolator.transaction" // including its retries
	spanOracle      = "percolator.oracle"
	spanRead        = "percolator.read"
	spanPrewrite    = "percolator.prewrite"
	spanCommit      = "percolator.commit"
)

// endSpan records err, if not nil, and ends the span.
func endSpan(s *tracing.Span, err error) {
	if err != nil {
		s.Fail(outcomeOf(err).String())
	}
	s.End()
}

// Trace makes s the parent of the spans of the transaction's operations; nil disables them.
// The caller ends s. Trace must be called before the transaction is used concurrently.
func (t *Txn) Trace(s *tracing.Span) { t.span = s }

// traced records the transaction's kind and outcome in its span.
func (t *Txn) traced(k counters.Kind, o counters.Outcome) {
	if t.span == nil {
		return
	}
	t.span.Text("percolator.name", t.name)
	t.span.Text("percolator.kind", k.String())
	t.span.Text("percolator.outcome", o.String())
	t.span.Number("percolator.start_ts", uint64(t.begun()))
	if o != counters.Committed {
		t.span.Event(o.String())
	}
	if t.ownsSpan {
		if o != counters.Committed {
			t.span.Fail(o.String())
		}
		t.span.End()
	}
}

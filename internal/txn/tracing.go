package txn

import "github.com/percolator-go/percolator/internal/tracing"

// This file says what is in the spans of transactions. A span belongs to the transaction's
// goroutines; all of it is skipped, by comparisons with nil, where nothing is traced.

// The names of spans. The tablets' and the observers' are in their packages.
const (
	spanTransaction = "percolator.transaction" // with all its runs, if it is repeated
	spanOracle      = "percolator.oracle"
	spanRead        = "percolator.read"
	spanPrewrite    = "percolator.prewrite"
	spanCommit      = "percolator.commit"
)

// endSpan ends a span of what has ended with err.
func endSpan(s *tracing.Span, err error) {
	if err != nil {
		s.Fail(outcomeOf(err).String())
	}
	s.End()
}

// Trace has the transaction's operations belong to the span, which its caller ends; nil:
// to none. It must be called before the transaction is used concurrently.
func (t *Txn) Trace(s *tracing.Span) { t.span = s }

// traced says in the transaction's span how it ended.
func (t *Txn) traced(k Kind, o Outcome) {
	if t.span == nil {
		return
	}
	t.span.Text("percolator.name", t.name)
	t.span.Text("percolator.kind", k.String())
	t.span.Text("percolator.outcome", o.String())
	t.span.Number("percolator.start_ts", uint64(t.begun()))
	if o != Committed {
		t.span.Event(o.String())
	}
	if t.ownsSpan {
		if o != Committed {
			t.span.Fail(o.String())
		}
		t.span.End()
	}
}

package mvcc_test

import (
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestWeights: zero bytes count twice, values and the primary's address count in full, and the
// requests after a prewrite weigh at least as much as the records that they write. Package tablet
// compares with the encoded size.
func TestWeights(t *testing.T) {
	plain, zero := parseCell("a.body"), mvcc.Cell{Table: testTable, Row: "\x00", Column: "body"}
	if zero.KeyBytes() != plain.KeyBytes()+1 {
		t.Errorf("a zero byte: %d bytes, another: %d", zero.KeyBytes(), plain.KeyBytes())
	}
	far := mvcc.Cell{Table: testTable, Row: "a long row", Column: "body"}
	limits := mvcc.DefaultLimits()
	if d := plain.PrewriteWeight(0, far) - plain.PrewriteWeight(0, plain); d != len("a long row")-1 {
		t.Errorf("a primary of 9 bytes more weighs %d more", d)
	}
	if d := plain.IntentWeight(far) - plain.IntentWeight(plain); d != len("a long row")-1 {
		t.Errorf("in an intent, %d more", d)
	}
	for name, weight := range map[string]func(n int) int{
		"prewrite":  func(n int) int { return plain.PrewriteWeight(n, plain) },
		"one phase": func(n int) int { return plain.OnePhaseWeight(n, limits) },
	} {
		if weight(1000)-weight(0) != 1000 {
			t.Errorf("%s: 1000 bytes weigh %d", name, weight(1000)-weight(0))
		}
		// In several entries of the store, each with its own key.
		if d := weight(1<<20) - weight(0); d < 1<<20+4*plain.KeyBytes() {
			t.Errorf("%s: a long value weighs %d", name, d)
		}
	}
	const keptError = 1 << 10
	if w := plain.DecisionWeight(limits); w < 4*plain.KeyBytes()+2*limits.Inline+keptError {
		t.Errorf("a decision weighs %d", w)
	}
	one, two := plain.NotifyWeight()-keptError, plain.IntentDecisionWeight()-keptError
	if one < plain.KeyBytes() || two != 2*one {
		t.Errorf("a notification weighs %d, the decision of an intent %d", one, two)
	}
}

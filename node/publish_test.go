package node

import (
	"context"
	"testing"
	"time"
)

// TestWhatIsToldWhen: other nodes learn within about a second that a node holds less, not with its
// next load report.
func TestWhatIsToldWhen(t *testing.T) {
	told := time.Unix(1000, 0)
	state := publisher{leadsMeta: 7, holding: holding{3, 2}, loadAt: told}
	for _, tc := range []struct {
		after     time.Duration
		leadsMeta uint64
		holding   holding
		want      bool
	}{
		{loadPause - 1, 7, holding{3, 2}, false},
		{loadPause, 7, holding{3, 2}, true},
		{0, 8, holding{3, 2}, true},
		{holdingPause, 7, holding{2, 2}, true},
		{holdingPause, 7, holding{3, 1}, true},
		{holdingPause - 1, 7, holding{2, 1}, false}, // not with every removed replica
	} {
		if got := state.due(told.Add(tc.after), tc.leadsMeta, tc.holding); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// TestHolding: a single node holds and leads two tablets.
func TestHolding(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "", true, true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if got := n.tablets.holding(); got != (holding{2, 2}) {
		t.Errorf("%+v", got)
	}
}

package node

import (
	"context"
	"errors"
	"testing"
)

// TestElections: wait ends once each expected tablet has elected a leader, however often it does, and
// at once without a tablet.
func TestElections(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	e := newElections()
	e.expect([]uint64{1, 2})
	for _, elected := range []uint64{1, 1, 7} {
		e.elected(elected)
	}
	if err := e.wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v with tablet 2 missing, want the error of the context", err)
	}
	e.elected(2)
	e.elected(2)
	if err := e.wait(t.Context()); err != nil {
		t.Error(err)
	}
	none := newElections()
	none.expect(nil)
	if err := none.wait(t.Context()); err != nil {
		t.Error(err)
	}
}

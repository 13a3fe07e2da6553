package reads

import "testing"

// TestReadLanesTakeTurns: a tablet with many jobs does not delay another's.
func TestReadLanesTakeTurns(t *testing.T) {
	p := NewPool(1)
	gate := make(chan struct{})
	lane := func() *Lane { l, _ := p.Lanes(); return l }
	busy, first, second := lane(), lane(), lane()
	busy.Submit(func() { <-gate })
	var order []string // by the only worker
	for range 50 {
		first.Submit(func() { order = append(order, "first") })
	}
	second.Submit(func() { order = append(order, "second") })
	for range maxLaneJobs - 50 {
		if !first.TrySubmit(func() {}) {
			t.Fatal("a lane with room refuses a job")
		}
	}
	if first.TrySubmit(func() { t.Error("a job that was refused is run") }) {
		t.Error("a full lane takes a job")
	}
	close(gate)
	p.Close()
	if len(order) != 51 || order[1] != "second" {
		t.Errorf("the jobs were done in the order %q", order)
	}
}

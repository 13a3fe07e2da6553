package snapshot

import (
	"errors"
	"testing"
)

// TestNoSnapshotOfHalfAReplica: a delayed snapshot is not taken of a range that is being filled at
// that moment: its state is the old replica's, and its rows are a mixture.
func TestNoSnapshotOfHalfAReplica(t *testing.T) {
	source, here := newSource(t, sentDescriptor()), newSite(t, "")
	before := here.old()
	a, err := here.arrive(source.pieces(1 << 20))
	if err != nil {
		t.Fatal(err)
	}
	between := 0
	here.installer.cut = func(step string) error {
		if step == "log" || step == "fill" || step == "flip" {
			between++
			if c, err := Capture(here.store.SnapWithLocks(), sentTablet); err == nil {
				t.Errorf("before %q: a snapshot as of entry %d, of %d entries", step,
					c.Applied.Index, len(here.contents(c.State.Tablet)))
				c.Snap.Close()
			} else if !errors.Is(err, errReplaced) {
				t.Error(err)
			}
		}
		return nil
	}
	if err := a.Install(before, nil); err != nil || between == 0 {
		t.Fatal(between, err)
	}
	here.checkInstalled(source.contents(sentDescriptor()))
}

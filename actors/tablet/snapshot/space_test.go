package snapshot

import (
	"errors"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/store"
)

// A snapshot is not staged if that would take the store below its watermark of free space, and not
// installed if the staged entries cannot be copied.
func TestSnapshotKeepsFreeSpace(t *testing.T) {
	pieces := newSource(t, sentDescriptor()).pieces(200)
	here := newSite(t, t.TempDir())
	before := here.old()
	want := here.contents(before)
	free, err := here.store.FreeBytes()
	if err != nil {
		t.Fatal(err)
	}
	a, err := here.arrive(pieces)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Fits(); err != nil {
		t.Fatal(err)
	}
	a.bytes = 2 * free
	if err := a.Fits(); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("more than is free fits: %v", err)
	}
	if err := here.installer.Unstage(sentTablet); err != nil {
		t.Fatal(err)
	}
	here.free = 2 * free // below the watermark, above the reserve
	here.reopen()
	if _, err := here.arrive(pieces); !errors.Is(err, store.ErrDiskFull) {
		t.Fatalf("staged below the watermark: %v", err)
	}
	snap := here.store.Snap()
	defer snap.Close()
	if ids, err := snap.StagedTablets(); len(ids) > 0 || err != nil {
		t.Errorf("staged: %v, %v", ids, err)
	}
	if !slices.Equal(here.contents(before), want) {
		t.Error("the replica's rows have changed")
	}
}

// cutShort begins to install a snapshot on an old replica, and ends at the step.
func cutShort(t *testing.T, step string) (here *site, want []string) {
	t.Helper()
	source := newSource(t, sentDescriptor())
	here = newSite(t, t.TempDir())
	before := here.old()
	a, err := here.arrive(source.pieces(200))
	if err != nil {
		t.Fatal(err)
	}
	here.cutAt(step, 0, store.ErrDiskFull)
	if err := a.Install(before, nil); !errors.Is(err, store.ErrDiskFull) {
		t.Fatal(err)
	}
	here.installer.cut = nil
	return here, source.contents(sentDescriptor())
}

// An installation that fails for lack of space keeps the staged entries and continues without a
// restart once there is space.
func TestInstallGoesOn(t *testing.T) {
	for _, step := range []string{"clear", "fill", "flip"} {
		here, want := cutShort(t, step)
		if err := here.installer.Unstage(sentTablet); !errors.Is(err, ErrUnfinished) {
			t.Fatalf("%s: what the installation needs is dropped: %v", step, err)
		}
		for range 2 {
			if err := here.installer.Finish(sentTablet); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
		}
		here.checkInstalled(want)
	}
}

// A replica that is removed during an installation leaves nothing, neither in its old range nor in
// the new one.
func TestDestroyUnfinished(t *testing.T) {
	for _, step := range []string{"clear", "fill", "flip"} {
		here, _ := cutShort(t, step)
		if err := here.installer.Destroy(sentTablet, 3); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		d := sentDescriptor()
		d.EndRow = []byte("zz")
		if got := here.contents(d); len(got) > 0 {
			t.Errorf("%s: %d entries are left", step, len(got))
		}
		if stored, err := StoredReplicas(here.store); len(stored) > 0 || err != nil {
			t.Errorf("%s: the stored replicas are %v, %v, want none", step, stored, err)
		}
	}
}

package backup_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/backup"
)

func names(t *testing.T, l *backup.Location) (out []string) {
	t.Helper()
	listed, err := l.List(t.Context())
	must(t, err)
	for _, b := range listed {
		if b.Manifest != nil {
			out = append(out, b.Name)
		}
	}
	return out
}

// TestPrune: chains that no time within the retention needs are removed whole, and no others.
func TestPrune(t *testing.T) {
	n := start(t, 10)
	dir := t.TempDir()
	l := open(t, dir)
	var made []*backup.Manifest
	for _, incremental := range []bool{false, true, false, true, false} {
		set(t, n.DB(), "bank", "row000001", "again")
		made = append(made, create(t, n.DB(), l, backup.CreateOptions{Incremental: incremental}))
	}
	some := create(t, n.DB(), l, backup.CreateOptions{Tables: []string{"bank"}})
	unfinished := filepath.Join(dir, "20200101T000000.000Z-full")
	must(t, os.Mkdir(unfinished, 0o700))
	must(t, os.WriteFile(filepath.Join(unfinished, "plan"), []byte("begun"), 0o600))

	prune := func(at time.Time, o backup.PruneOptions) []string {
		t.Helper()
		o.Now, o.Keep = at.Add(time.Hour), time.Hour
		removed, err := backup.Prune(t.Context(), l, o)
		must(t, err)
		return removed
	}
	before := names(t, l)
	// Restoring the time of the first increment needs its full backup.
	if got := prune(made[1].Time, backup.PruneOptions{}); len(got) > 0 {
		t.Errorf("PRUNED: removed %q, which are needed", got)
	}
	// A moment before the second full backup the first chain is still needed.
	if got := prune(made[2].Time.Add(-time.Millisecond), backup.PruneOptions{}); len(got) > 0 {
		t.Errorf("PRUNED: removed %q, which are needed", got)
	}
	if got := prune(made[4].Time, backup.PruneOptions{Cluster: "another"}); len(got) > 0 {
		t.Errorf("PRUNED: removed %q of another cluster", got)
	}
	// Children are removed before their parents.
	got := prune(made[2].Time, backup.PruneOptions{Cluster: made[0].Cluster})
	if want := []string{made[1].Name, made[0].Name}; !slices.Equal(got, want) {
		t.Errorf("removed %q, want %q", got, want)
	}
	if got := prune(made[4].Time.Add(24*time.Hour), backup.PruneOptions{}); !slices.Equal(got, []string{made[3].Name, made[2].Name}) {
		t.Errorf("removed %q", got)
	}
	if got := names(t, l); !slices.Equal(got, []string{made[4].Name, some.Name}) {
		t.Errorf("of %q there are left %q", before, got)
	}
	if _, err := os.Stat(filepath.Join(unfinished, "plan")); err != nil {
		t.Error("a backup that is being made was removed:", err)
	}
	v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
	if err != nil || len(v.Faults) > 0 {
		t.Errorf("what is left: %v, %v", v, err)
	}
}

// cutContext ends after some checks of it, each of which precedes a removal.
type cutContext struct {
	context.Context
	left int
}

func (c *cutContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestPruneCutShort: after a crash during a removal no backup lacks one that it needs, and the next
// call removes the rest.
func TestPruneCutShort(t *testing.T) {
	n := start(t, 10)
	dir := t.TempDir()
	l := open(t, dir)
	full := create(t, n.DB(), l, backup.CreateOptions{})
	create(t, n.DB(), l, backup.CreateOptions{Incremental: true})
	last := create(t, n.DB(), l, backup.CreateOptions{})
	for cut := 1; len(names(t, l)) > 1; cut++ {
		_, err := backup.Prune(&cutContext{t.Context(), 1}, l, backup.PruneOptions{Now: last.Time})
		if err == nil || cut > 20 {
			t.Fatalf("after %d calls, each of one removal: %q, %v", cut, names(t, l), err)
		}
		v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
		if err != nil || len(v.Faults) > 0 {
			t.Fatalf("ORPHANED: after %d removals: %v, %v", cut, v.Faults, err)
		}
	}
	_, err := backup.Prune(t.Context(), l, backup.PruneOptions{Now: last.Time})
	must(t, err)
	all, err := filepath.Glob(filepath.Join(dir, full.Name, "*"))
	if err != nil || len(all) > 0 {
		t.Errorf("left %s, %v", strings.Join(all, " "), err)
	}
}

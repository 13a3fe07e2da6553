package backup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestResumedCreate: an interrupted backup keeps its finished ranges and its timestamp.
func TestResumedCreate(t *testing.T) {
	from := start(t, 100)
	dir := t.TempDir()
	db, l := from.DB(), open(t, dir)
	interruptCreate(t, db, l)
	listed, err := l.List(t.Context())
	must(t, err)
	if len(listed) != 1 || listed[0].Manifest != nil {
		t.Fatalf("%+v", listed)
	}
	folder := filepath.Join(dir, listed[0].Name)
	killed := filepath.Join(folder, "000001-0badcafe.data.18ea8d00dfc56ad1.tmp") // kill -9 leaves such files
	must(t, os.WriteFile(killed, []byte("half"), 0o600))
	set(t, db, "bank", "row000001", "later")
	set(t, db, "bank", "row000099", "later")
	_, err = backup.Create(t.Context(), handle.Client(db), l, backup.CreateOptions{Tables: []string{"bank"}})
	if err == nil {
		t.Error("another backup was made of what was interrupted")
	}
	resumed := ""
	first := -1
	m := create(t, db, l, backup.CreateOptions{
		Resumed: func(name string) { resumed = name },
		Options: backup.Options{Progress: func(p backup.Progress) {
			if first < 0 {
				first = p.Done
			}
		}},
	})
	if resumed != listed[0].Name || m.Name != resumed || first != 1 {
		t.Errorf("RESUMED: %q of %q, with %d ranges done", resumed, m.Name, first)
	}
	there, err := os.ReadDir(folder)
	must(t, err)
	if len(there) != 1+len(m.Files) {
		t.Errorf("beside the manifest and %d files there are others: %v", len(m.Files), there)
	}
	to := percolatortest.Start(t, nil)
	_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
	must(t, err)
	equal(t, "resumed", contentsNow(t, to.DB(), "bank"), contentsAt(t, db, "bank", percolator.Timestamp(m.At)))
	if holds := holdsOf(t, from); holds != 0 {
		t.Errorf("HELD: %d holds on history after the backup", holds)
	}
}

func holdsOf(t testing.TB, n *percolatortest.Node) uint32 {
	status, err := handle.Client(n.DB()).NodeStatus(t.Context())
	must(t, err)
	return status.GetHistory().GetHolds()
}

// TestRestart: only interrupted backups of this cluster are removed.
func TestRestart(t *testing.T) {
	n, other := start(t, 100), start(t, 100)
	dir := t.TempDir()
	l := open(t, dir)
	foreign := []string{
		filepath.Join(dir, "photos", "one"), filepath.Join(dir, "20261122T221500.123Z-full", "notes"),
		filepath.Join(dir, "20261122T221500.123Z-full-old", "plan"),
	}
	for _, name := range foreign {
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte("mine"), 0o600))
	}
	for _, db := range []*percolator.DB{n.DB(), other.DB()} {
		interruptCreate(t, db, l)
	}
	interrupted, err := filepath.Glob(filepath.Join(dir, "*", "plan"))
	must(t, err)
	for _, plan := range interrupted { // copies, one of them of this cluster
		own := filepath.Dir(plan)
		must(t, os.CopyFS(own+"-copy", os.DirFS(own)))
		foreign = append(foreign, filepath.Join(own+"-copy", "plan"))
	}
	create(t, n.DB(), l, backup.CreateOptions{Restart: true})
	resumed := ""
	create(t, other.DB(), l, backup.CreateOptions{Resumed: func(name string) { resumed = name }})
	for _, name := range foreign {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("REMOVED: %v", err)
		}
	}
	if resumed == "" || len(interrupted) != 3 {
		t.Errorf("REMOVED: the other cluster's backup (%v) was not continued", interrupted)
	}
	// Of the three folders named like backups one is never finished.
	listed, err := l.List(t.Context())
	must(t, err)
	whole := 0
	for _, b := range listed {
		if b.Manifest != nil {
			whole++
		}
	}
	if len(listed) != 3 || whole != 2 {
		t.Errorf("%d backups listed, %d of them whole: %+v", len(listed), whole, listed)
	}
}

// interruptCreate completes one range of a backup.
func interruptCreate(t *testing.T, db *percolator.DB, l *backup.Location) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	_, err := backup.Create(ctx, handle.Client(db), l, backup.CreateOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done == 1 {
				stop()
			}
		}},
	})
	if err == nil {
		t.Fatal("not interrupted")
	}
}

// TestMadeAnew: a recreated table is never restored in place of the dropped one of the same name.
func TestMadeAnew(t *testing.T) {
	from := start(t, 10)
	l := open(t, t.TempDir())
	first := create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	later := set(t, from.DB(), "bank", "row000001", "later")
	must(t, handle.Client(from.DB()).DropTable(t.Context(), "bank"))
	must(t, from.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "bank"}))
	set(t, from.DB(), "bank", "new", "1")
	second := create(t, from.DB(), l, backup.CreateOptions{Incremental: true})
	to := percolatortest.Start(t, nil)
	for _, o := range []backup.RestoreOptions{
		{At: first.At, Backup: second.Name}, {At: uint64(later)},
		{At: uint64(later), Tables: map[string]string{"bank": "bank"}},
	} {
		r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, o)
		if !errors.Is(err, backup.ErrTable) || !strings.Contains(fmt.Sprint(err), first.Name) {
			t.Errorf("ANOTHER: restored %+v, %v", r, err)
		}
	}
	for name, at := range map[string]uint64{"old": first.At, "new": second.At} {
		_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
			At: at, Tables: map[string]string{"bank": name},
		})
		must(t, err)
	}
	equal(t, "old", contentsNow(t, to.DB(), "old"), want)
	if got := contentsNow(t, to.DB(), "new"); len(got) != 1 {
		t.Errorf("the new one has %v", got)
	}
}

// TestDroppedTable: a dropped table is restored from the backups that contain it and omitted from
// the others.
func TestDroppedTable(t *testing.T) {
	from := start(t, 10)
	must(t, from.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "other"}))
	l := open(t, t.TempDir())
	first := create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	must(t, handle.Client(from.DB()).DropTable(t.Context(), "bank"))
	last := create(t, from.DB(), l, backup.CreateOptions{Incremental: true})
	to := percolatortest.Start(t, nil)
	for at, hint := range map[uint64]string{first.At: first.Name, last.At: "not in the backup"} {
		r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
			At: at, Backup: last.Name, Tables: map[string]string{"bank": "bank"},
		})
		if !errors.Is(err, backup.ErrTable) || !strings.Contains(fmt.Sprint(err), hint) {
			t.Errorf("a table that was dropped before the backup, at %d: %+v, %v", at, r, err)
		}
	}
	r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
		At: first.At, Backup: last.Name,
	})
	must(t, err)
	if !slices.Equal(r.Tables, []string{"other"}) || !slices.Equal(r.LeftOut, []string{"bank"}) {
		t.Errorf("restored %v, left out %v", r.Tables, r.LeftOut)
	}
	_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
		Backup: first.Name, Tables: map[string]string{"bank": "bank"},
	})
	must(t, err)
	equal(t, "dropped", contentsNow(t, to.DB(), "bank"), want)
}

// TestPlannedBeforeRestore: a backup planned while a table was empty contains nothing of a restore
// into it since.
func TestPlannedBeforeRestore(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	to := start(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	begun := false
	m, err := backup.Create(t.Context(), handle.Client(to.DB()), open(t, t.TempDir()), backup.CreateOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done == 0 || begun {
				return
			}
			begun = true
			_, err := backup.Restore(ctx, handle.Client(to.DB()), l, backup.RestoreOptions{
				Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
					if p.Done == 2 {
						stop()
					}
				}},
			})
			if err == nil {
				t.Error("not interrupted")
			}
		}},
	})
	if !errors.Is(err, backup.ErrHistoryGone) {
		t.Errorf("HALF: the backup ended with %v: %+v", err, m)
	}
}

// TestDroppedMeanwhile: a backup whose table was dropped cannot be finished, and the error says how
// to continue.
func TestDroppedMeanwhile(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	interruptCreate(t, from.DB(), l)
	must(t, handle.Client(from.DB()).DropTable(t.Context(), "bank"))
	_, err := backup.Create(t.Context(), handle.Client(from.DB()), l, backup.CreateOptions{})
	if !errors.Is(err, backup.ErrTable) || !strings.Contains(err.Error(), "--restart") {
		t.Errorf("a dropped table: %v", err)
	}
	create(t, from.DB(), l, backup.CreateOptions{Restart: true})
}

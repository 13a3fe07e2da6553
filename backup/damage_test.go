package backup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestDamage flips each byte of a chain of backups in turn. Verify detects every flip, and a
// restore fails.
func TestDamage(t *testing.T) {
	from := start(t, 12)
	dir := t.TempDir()
	l := open(t, dir)
	create(t, from.DB(), l, backup.CreateOptions{Tables: []string{"bank"}})
	set(t, from.DB(), "bank", "row000003", "")
	set(t, from.DB(), "bank", "row000004", "later")
	create(t, from.DB(), l, backup.CreateOptions{Tables: []string{"bank"}, Incremental: true})
	to := percolatortest.Start(t, nil, percolatortest.Tables(percolator.TableSpec{Name: "other"}))
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	must(t, err)
	flips, restores := 0, 0
	for _, file := range files {
		whole, err := os.ReadFile(file)
		must(t, err)
		for i := range whole {
			damaged := append([]byte(nil), whole...)
			damaged[i] ^= 1 << (i % 8)
			must(t, os.WriteFile(file, damaged, 0o600))
			v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
			must(t, err)
			if len(v.Faults) == 0 {
				t.Fatalf("UNNOTICED: byte %d of %s", i, file)
			}
			flips++
			if i%61 == 0 { // a restore takes longer
				name := fmt.Sprintf("bank%d", restores)
				_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
					Tables: map[string]string{"bank": name},
				})
				if !errors.Is(err, backup.ErrDamaged) {
					t.Fatalf("UNNOTICED: restored with byte %d of %s flipped: %v", i, file, err)
				}
				restores++
			}
		}
		// A file that is truncated, extended, or missing.
		for _, other := range [][]byte{whole[:len(whole)-1], append(append([]byte(nil), whole...), 0)} {
			must(t, os.WriteFile(file, other, 0o600))
			v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
			must(t, err)
			if len(v.Faults) == 0 {
				t.Fatalf("UNNOTICED: %s with %d bytes", file, len(other))
			}
		}
		must(t, os.Remove(file))
		v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
		must(t, err)
		// Without its manifest a backup counts as unfinished; any other missing file is a fault.
		if len(v.Faults)+len(v.Unfinished) == 0 {
			t.Fatalf("UNNOTICED: %s is gone", file)
		}
		must(t, os.WriteFile(file, whole, 0o600))
	}
	if flips < 1000 || restores < 10 {
		t.Errorf("only %d bytes flipped, %d restores", flips, restores)
	}
	v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
	must(t, err)
	if len(v.Faults) > 0 {
		t.Errorf("sound again: %v", v.Faults)
	}
}

// TestDamagedBeside: a damaged backup does not prevent other backups and restores.
func TestDamagedBeside(t *testing.T) {
	from, dir := start(t, 10), filepath.Join(t.TempDir(), "new", "newer")
	l := open(t, dir)
	bad := create(t, from.DB(), l, backup.CreateOptions{})
	must(t, os.WriteFile(filepath.Join(dir, bad.Name, "manifest"), []byte("nothing"), 0o600))
	_, err := backup.Create(t.Context(), handle.Client(from.DB()), l, backup.CreateOptions{Incremental: true})
	if !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("made upon a damaged one: %v", err)
	}
	create(t, from.DB(), l, backup.CreateOptions{})
	set(t, from.DB(), "bank", "row000003", "later")
	m := create(t, from.DB(), l, backup.CreateOptions{Incremental: true})
	to := percolatortest.Start(t, nil)
	_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
	if !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("restored the newest, though one can't be read: %v", err)
	}
	_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{Backup: m.Name})
	must(t, err)
	equal(t, "restored", contentsNow(t, to.DB(), "bank"), contentsNow(t, from.DB(), "bank"))
}

// TestDamagedPlan: an interrupted backup with an unreadable plan is neither resumed nor removed,
// and does not prevent others.
func TestDamagedPlan(t *testing.T) {
	from, dir := start(t, 100), t.TempDir()
	l := open(t, dir)
	interruptCreate(t, from.DB(), l)
	plans, err := filepath.Glob(filepath.Join(dir, "*", "plan"))
	must(t, err)
	must(t, os.WriteFile(plans[0], []byte("nothing"), 0o600))
	for _, restart := range []bool{false, true} {
		create(t, from.DB(), l, backup.CreateOptions{
			Restart: restart, Resumed: func(name string) { t.Errorf("continued with %s", name) },
		})
	}
	if _, err := os.Stat(plans[0]); err != nil {
		t.Errorf("REMOVED: %v", err)
	}
}

// TestNoBackup: without a complete backup verify fails and creates nothing.
func TestNoBackup(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	if _, err := backup.Open(t.Context(), nowhere); !errors.Is(err, backup.ErrNotFound) {
		t.Errorf("opened: %v", err)
	}
	if _, err := os.Stat(nowhere); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("MADE: %v", err)
	}
	l, err := backup.OpenNew(t.Context(), nowhere)
	must(t, err)
	defer func() { _ = l.Close() }()
	verify := func(what string) {
		t.Helper()
		if v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{}); !errors.Is(err, backup.ErrNotFound) {
			t.Errorf("%s: %+v, %v", what, v, err)
		}
	}
	verify("an empty directory")
	interruptCreate(t, start(t, 100).DB(), l)
	verify("an unfinished backup")
}

// TestNoDriver: a program without a driver for the scheme gets an error that names the import.
func TestNoDriver(t *testing.T) {
	for url, says := range map[string]string{
		"s3://backups?region=eu-central-1": `import _ "github.com/percolator-go/percolator/backup/s3" in its main package`,
		"gs://backups":                     "name a directory or an s3:// bucket",
	} {
		_, err := backup.Open(t.Context(), url)
		if !errors.Is(err, backup.ErrNoDriver) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

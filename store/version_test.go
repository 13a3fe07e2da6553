package store_test

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/store"
)

// TestVersionIsRaised: a directory has the oldest version until it is raised; its content is kept;
// builds that do not support its version refuse it without changing it.
func TestVersionIsRaised(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	before, after := version.Range{Oldest: 2, Newest: 2}, version.Range{Oldest: 2, Newest: 3}
	later := version.Range{Oldest: 4, Newest: 9}
	open := func(knows version.Range) (*store.Store, error) {
		return store.Open(store.Options{Dir: dir, MinFreeBytes: 1, Versions: knows})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := open(after)
	must(err)
	commit(t, s, round(1, 10))
	if s.Version() != 2 {
		t.Errorf("a new store is of version %d", s.Version())
	}
	must(s.Close())
	s, err = open(before) // rolled back
	must(err)
	must(s.Close())
	s, err = open(after)
	must(err)
	must(s.RaiseVersion(3))
	must(s.RaiseVersion(2)) // changes nothing
	must(s.Close())
	was := contents(t, dir)
	for _, knows := range []version.Range{before, later} {
		var refused *store.VersionError
		if _, err := open(knows); !errors.As(err, &refused) || refused.Have != "3" || refused.Knows != knows {
			t.Errorf("DIRECTORY-OF-ANOTHER-VERSION: a build that knows %s: %v", knows, err)
		}
	}
	if contents(t, dir) != was {
		t.Error("a build that was refused has changed the directory")
	}
	// A crash while raising the version has left a partial file.
	write(t, dir, "VERSION.raised", "perc")
	s, err = open(after)
	must(err)
	if s.Version() != 3 {
		t.Errorf("opened anew it is of version %d", s.Version())
	}
	must(s.Close())
}

// TestReleaseIsNamed: from version.Named on the VERSION file names the release that wrote it, and
// so does the error of a build that does not support the version.
func TestReleaseIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := store.Open(store.Options{Dir: dir, MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.RaiseVersion(version.Named.Since), s.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil || !strings.HasSuffix(string(text), "\nrelease "+version.Release+"\n") {
		t.Errorf("VERSION is %q, %v", text, err)
	}
	if s, err = store.Open(store.Options{Dir: dir, MinFreeBytes: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(store.Options{Dir: dir, MinFreeBytes: 1, Versions: version.Range{Oldest: 2, Newest: 3}})
	var refused *store.VersionError
	if !errors.As(err, &refused) || refused.Release != version.Release ||
		!strings.Contains(err.Error(), "such as release "+version.Release+", which wrote it") {
		t.Errorf("an earlier build: %v", err)
	}
}

// contents returns a digest of all files of a directory, with names and modification times.
func contents(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		sum.Write([]byte(path + info.ModTime().String()))
		sum.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(sum.Sum(nil))
}

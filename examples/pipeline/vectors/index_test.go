package vectors

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func open(t *testing.T, path string) *Index {
	t.Helper()
	x, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() }) // closed twice after a restart
	return x
}

func value(id string, version, readAt uint64, text string) Change {
	return Change{ReadAt: readAt, Entry: Entry{ID: id, Version: version, Text: text, Vector: []float32{1}}}
}

func tombstone(id string, version uint64) Change {
	return Change{Entry: Entry{ID: id, Version: version, Gone: true}}
}

func apply(t *testing.T, x *Index, changes ...Change) {
	t.Helper()
	if err := x.Apply(changes); err != nil {
		t.Fatal(err)
	}
}

// texts returns the texts by ID; a tombstone's is "†".
func texts(x *Index) map[string]string {
	all := map[string]string{}
	for _, e := range x.Entries() {
		all[e.ID] = e.Text
		if e.Gone {
			all[e.ID] = "†"
		}
	}
	return all
}

func expect(t *testing.T, x *Index, want map[string]string) {
	t.Helper()
	if got := texts(x); !reflect.DeepEqual(got, want) {
		t.Errorf("the index has %v, want %v", got, want)
	}
}

// TestNewestVersion delivers changes late and repeatedly, with restarts of the index in between.
func TestNewestVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "vectors")
	x := open(t, path)
	apply(t, x, value("a", 5, 6, "new"), value("b", 3, 4, "b"))
	apply(t, x, value("a", 4, 4, "old"), tombstone("b", 7), tombstone("c", 7))
	for range 2 {
		apply(t, x, value("b", 3, 4, "b"), value("a", 5, 6, "again"), value("c", 6, 6, "late"))
		expect(t, x, map[string]string{"a": "new", "b": "†", "c": "†"})
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = open(t, path)
	}
	apply(t, x, value("b", 8, 9, "back"))
	expect(t, x, map[string]string{"a": "new", "b": "back", "c": "†"})
}

// TestLateChangeAfterDrop drops tombstones, also before a restart: a change read before the drop is
// refused together with all others of its call and does not restore the entry.
func TestLateChangeAfterDrop(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "vectors")
	x := open(t, path)
	apply(t, x, tombstone("a", 7), tombstone("b", 10), value("c", 7, 8, "c"))
	if err := errors.Join(x.Drop(10), x.Drop(9)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		expect(t, x, map[string]string{"b": "†", "c": "c"})
		err := x.Apply([]Change{value("d", 11, 12, "d"), value("a", 6, 9, "late")})
		if !errors.Is(err, ErrStale) {
			t.Fatalf("REVIVED: Apply of a change that was read before the horizon returned %v", err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = open(t, path)
	}
	apply(t, x, value("d", 6, 10, "old, but read now"), tombstone("c", 12))
	expect(t, x, map[string]string{"b": "†", "c": "†", "d": "old, but read now"})
}

// TestUnfinishedLine opens a file whose last write was truncated.
func TestUnfinishedLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "vectors")
	x := open(t, path)
	apply(t, x, value("a", 1, 1, "a"))
	apply(t, x, value("b", 2, 2, "b"))
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Apply([]Change{value("c", 3, 3, "c")}); err == nil {
		t.Error("Apply succeeds after Close")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	x = open(t, path)
	expect(t, x, map[string]string{"a": "a"})
	apply(t, x, value("b", 2, 2, "b"))
	expect(t, open(t, path), map[string]string{"a": "a", "b": "b"})
}

// TestRewritten expects the file to be rewritten when most of its lines are outdated.
func TestRewritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "vectors")
	x := open(t, path)
	for version := range uint64(1200) {
		x.lines++ // as if each had been written
		x.set(line{Entry: &Entry{ID: "a", Version: version + 1}})
	}
	apply(t, x, value("a", 2000, 2000, "a"))
	if err := x.Drop(1); err != nil {
		t.Fatal(err)
	}
	apply(t, x, value("b", 2001, 2001, "b"))
	if x.lines != 3 {
		t.Errorf("%d lines", x.lines)
	}
	expect(t, open(t, path), map[string]string{"a": "a", "b": "b"})
}

func TestSearch(t *testing.T) {
	t.Parallel()
	x := open(t, filepath.Join(t.TempDir(), "vectors"))
	for id, v := range map[string][]float32{"far": {0, 1}, "near": {1, 0}, "middle": {0.6, 0.8}} {
		apply(t, x, Change{Entry: Entry{ID: id, Version: 1, Vector: v}})
	}
	apply(t, x, tombstone("gone", 1))
	hits := x.Search([]float32{1, 0}, 2)
	if len(hits) != 2 || hits[0].ID != "near" || hits[1].ID != "middle" {
		t.Errorf("found %v", hits)
	}
}

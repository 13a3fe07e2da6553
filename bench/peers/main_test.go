package main

import (
	"errors"
	"os"
	"testing"
	"time"
)

// TestSmoke runs everything once, briefly.
func TestSmoke(t *testing.T) {
	if err := run(t.Context(), kinds, 8, 100*time.Millisecond, 1, t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

// TestDocuments clusters a few documents in each store. The called functions check that all of
// them have a cluster in the end.
func TestDocuments(t *testing.T) {
	for _, k := range clusterers {
		t.Run(k.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "") // a short path for a socket, accessible to other users
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err = compareDocuments(t.Context(), []clustererKind{k}, "", 500, 1, dir)
			if errors.Is(err, errNoPostgres) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestClosure compares the answers of each kind.
func TestClosure(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err = runClosure(t.Context(), 50*time.Millisecond, dir)
	if errors.Is(err, errNoPostgres) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"testing"
	"time"
)

// TestSmoke runs everything once, shortly.
func TestSmoke(t *testing.T) {
	if err := run(t.Context(), kinds, 8, 100*time.Millisecond, 1, t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

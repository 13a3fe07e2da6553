package store_test

import (
	"testing"

	"github.com/percolator-go/percolator/store"
)

// TestCompactionsAreCounted: Badger reports compactions only in its log lines, which are parsed to
// count them; the levels are reported too.
func TestCompactionsAreCounted(t *testing.T) {
	dir := t.TempDir()
	tabled(t, dir)
	s := open(t, dir, quiet)
	defer func() { _ = s.Close() }()
	before := s.Trees()
	if err := store.Flatten(s); err != nil {
		t.Fatal(err)
	}
	after := s.Trees()
	if after.Compactions == before.Compactions {
		t.Error("no compaction was counted: has Badger another log line for it?")
	}
	var tables, bytes uint64
	for _, l := range after.Levels {
		tables, bytes = tables+l.Tables, bytes+l.Bytes
	}
	if tables == 0 || bytes == 0 || after.Stalled || after.Stalls != 0 {
		t.Errorf("%+v", after)
	}
	if s.Syncs().Count() == 0 {
		t.Error("no sync was counted")
	}
}

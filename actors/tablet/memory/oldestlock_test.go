package memory

import (
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// OldestLock ignores reservations, whose start timestamps mean nothing, and examines at most the
// given number of locks.
func TestOldestLock(t *testing.T) {
	m := New(Config{})
	if ts := m.OldestLock(10); ts != 0 {
		t.Errorf("of no locks: %d", ts)
	}
	for row, lock := range map[string]*mvcc.Lock{
		"a": {StartTS: 30}, "b": {StartTS: 10, Token: 7}, "c": {StartTS: 20}, "d": {StartTS: 5},
	} {
		m.locks.put(mvcc.Cell{Table: 16, Row: row}, lock, 0)
	}
	if ts := m.OldestLock(10); ts != 5 {
		t.Errorf("the oldest is %d, want 5", ts)
	}
	if ts := m.OldestLock(2); ts != 20 {
		t.Errorf("the oldest of two is %d, want 20", ts)
	}
}

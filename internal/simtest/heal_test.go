package simtest

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNotHealed checks that healing a cluster that has permanently lost two of its three nodes'
// disks fails in time, names the missing nodes, and leaks nothing. It once waited forever.
func TestNotHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{Seed: 1, Nodes: 3})
		if err != nil {
			t.Fatal(err)
		}
		for !c.replicated(t.Context(), 3) {
			sleep(t.Context(), 100*time.Millisecond)
		}
		lost := c.list()[1:]
		for _, m := range lost {
			if err := errors.Join(m.crash(false), m.store.Load().Close()); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range lost {
			st, err := openStore()
			if err != nil {
				t.Fatal(err)
			}
			m.store.Store(st)
		}
		if err := c.heal(); !errors.Is(err, errNotHealed) ||
			!strings.Contains(err.Error(), "nodes [1 2] of 3 do not serve") {
			t.Errorf("it healed: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

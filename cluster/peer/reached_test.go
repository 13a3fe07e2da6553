package peer_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
)

// TestReached: a node records another's highest reported log position, by incarnation.
func TestReached(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memlink.Network, add add) {
		var at atomic.Uint64
		a := add(self(1, 1), &handler{}, peer.Config{})
		says := func(incarnation uint64, reached ...uint64) {
			b := add(self(2, incarnation), &handler{}, peer.Config{Reached: at.Load})
			for _, n := range reached {
				at.Store(n)
				if _, err := b.Call(context.Background(), 1, ask(1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		want := func(incarnation, reached uint64) {
			t.Helper()
			if got := a.Reached(2, incarnation); got != reached {
				t.Errorf("before incarnation %d it had come to %d, want %d", incarnation, got, reached)
			}
		}
		want(1, 0)
		says(1, 5, 7, 6)
		want(1, 0)
		want(2, 7)
		says(2, 9)
		want(2, 7)
		want(3, 9)
	})
}

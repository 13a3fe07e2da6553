package httpd

import (
	"net/netip"
	"testing"
	"time"
)

// TestGuesses: the count is by address, by network for IPv6, bounded, and begins anew after
// a minute.
func TestGuesses(t *testing.T) {
	now := time.Unix(1000, 0)
	g := &guesses{now: func() time.Time { return now }, failed: map[netip.Addr]int{}}
	a := netip.MustParseAddr("2001:db8::1")
	neighbour, other := netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8:0:1::1")
	for range maxGuesses {
		if wait := g.add(a); wait != 0 {
			t.Fatal(wait)
		}
	}
	if g.add(neighbour) != guessTime || g.add(other) != 0 {
		t.Errorf("counts: %v", g.failed)
	}
	g.takeBack(other)
	for i := range 2 * maxGuessers {
		g.add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	if len(g.failed) > maxGuessers+1 {
		t.Errorf("%d addresses are counted", len(g.failed))
	}
	now = now.Add(guessTime)
	if g.add(a) != 0 || len(g.failed) != 1 {
		t.Errorf("after a minute: %v", g.failed)
	}
}

package httpd

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestGuesses: failures are counted by address, by network for IPv6, and by the tokens' first
// characters; only different tokens count, the counts are bounded and reset after a minute, and so
// are remembered wrong tokens.
func TestGuesses(t *testing.T) {
	now := time.Unix(1000, 0)
	g := newGuesses(func() time.Time { return now })
	wrong := errors.New("it is wrong")
	a := netip.MustParseAddr("2001:db8::1")
	neighbour, other := netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8:0:1::1")
	const alike, unlike = "percolator_AAAA", "percolator_BBBB"
	g.add(a, alike+"seen", nil)
	for i := range maxGuesses {
		if g.suspect(a, alike+"another") {
			t.Fatalf("after %d", i)
		}
		for range 3 {
			g.add(a, alike+fmt.Sprint(i), wrong)
		}
	}
	for _, c := range []struct {
		addr  netip.Addr
		token string
		want  bool
	}{
		{a, alike + "another", true}, {neighbour, alike + "another", true}, {other, alike + "another", false},
		{a, unlike, false}, {a, alike + "seen", false},
	} {
		if got := g.suspect(c.addr, c.token); got != c.want {
			t.Errorf("GUESSES: %s from %v: %v", c.token, c.addr, got)
		}
	}
	if err := g.known(alike + "3"); !errors.Is(err, wrong) {
		t.Errorf("a wrong one again: %v", err)
	}
	for i := range 2 * maxRemembered {
		g.add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), fmt.Sprint("more ", i), wrong)
		g.add(a, fmt.Sprint("valid ", i), nil)
	}
	if len(g.failed) > maxKinds+1 || len(g.wrong) > maxRemembered || len(g.valid) > maxRemembered {
		t.Errorf("%d kinds are counted, %d and %d tokens remembered", len(g.failed), len(g.wrong), len(g.valid))
	}
	now = now.Add(guessTime)
	if g.known(alike+"3") != nil || len(g.failed)+len(g.wrong) != 0 {
		t.Errorf("after a minute: %v", g.failed)
	}
}

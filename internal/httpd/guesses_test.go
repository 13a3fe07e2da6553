package httpd

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestGuesses: the count is by address, by network for IPv6, of different tokens, bounded,
// and begins anew after a minute, as does what is remembered.
func TestGuesses(t *testing.T) {
	now := time.Unix(1000, 0)
	g := newGuesses(func() time.Time { return now })
	wrong := errors.New("it is wrong")
	a := netip.MustParseAddr("2001:db8::1")
	neighbour, other := netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8:0:1::1")
	for i := range maxGuesses {
		if err := g.refusal(a, "another"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			g.add(a, fmt.Sprint(i), wrong)
		}
	}
	if g.refusal(neighbour, "another") == nil || g.refusal(other, "another") != nil {
		t.Errorf("counts: %v", g.failed)
	}
	if err := g.refusal(other, "3"); !errors.Is(err, wrong) {
		t.Errorf("a wrong one again: %v", err)
	}
	for i := range 2 * maxWrong {
		g.add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), fmt.Sprint("more ", i), wrong)
	}
	if len(g.failed) > maxGuessers+1 || len(g.wrong) > maxWrong {
		t.Errorf("%d addresses are counted, %d tokens remembered", len(g.failed), len(g.wrong))
	}
	now = now.Add(guessTime)
	if g.refusal(a, "3") != nil || len(g.failed)+len(g.wrong) != 0 {
		t.Errorf("after a minute: %v", g.failed)
	}
}

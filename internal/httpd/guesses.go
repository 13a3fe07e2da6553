package httpd

import (
	"net/netip"
	"sync"
	"time"
)

// Tokens are too long to be guessed. What guesses bounds is the work that wrong ones make,
// each a question to meta, and the lines in the log. Requests call it on their goroutines.

const (
	// maxGuesses is how many wrong tokens an address may show within guessTime. All
	// addresses beyond maxGuessers share one count.
	maxGuesses  = 10
	guessTime   = time.Minute
	maxGuessers = 1024
)

// guesses counts wrong tokens by address, within a minute that begins anew when it is over.
type guesses struct {
	now func() time.Time

	mu     sync.Mutex
	began  time.Time
	failed map[netip.Addr]int
}

// add counts one guess. It returns how long to wait if there were too many already.
func (g *guesses) add(addr netip.Addr) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if now.Sub(g.began) >= guessTime {
		g.began = now
		clear(g.failed)
	}
	addr = g.counted(addr)
	if g.failed[addr] >= maxGuesses {
		return g.began.Add(guessTime).Sub(now)
	}
	g.failed[addr]++
	return 0
}

// takeBack takes back a guess that was right.
func (g *guesses) takeBack(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if addr = g.counted(addr); g.failed[addr] > 0 {
		g.failed[addr]--
	}
}

// counted is what the address is counted by: whoever has one of IPv6 has all of its network.
func (g *guesses) counted(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		if network, err := addr.WithZone("").Prefix(64); err == nil {
			addr = network.Addr()
		}
	}
	if _, known := g.failed[addr]; !known && len(g.failed) >= maxGuessers {
		return netip.Addr{}
	}
	return addr
}

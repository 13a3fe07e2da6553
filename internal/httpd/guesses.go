package httpd

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Tokens are too long to be guessed. What guesses bounds is the work that wrong ones make,
// each a question to meta. One that was found wrong is remembered: a page that goes on
// showing a token that was revoked must not keep those that are right out, which come from
// the same address. Requests call it on their goroutines.

const (
	// maxGuesses is how many wrong tokens an address may show within guessTime. All
	// addresses beyond maxGuessers share one count.
	maxGuesses  = 10
	guessTime   = time.Minute
	maxGuessers = 1024
	// maxWrong is how many tokens are remembered. Those beyond it are looked up and counted
	// each time.
	maxWrong = 4096
)

// guesses counts wrong tokens by address, within a minute that begins anew when it is over.
type guesses struct {
	now func() time.Time

	mu     sync.Mutex
	began  time.Time
	failed map[netip.Addr]int
	wrong  map[[sha256.Size]byte]error // what was wrong, by the token's hash
}

func newGuesses(now func() time.Time) *guesses {
	return &guesses{
		now: now, failed: map[netip.Addr]int{}, wrong: map[[sha256.Size]byte]error{},
	}
}

// refusal returns why a token is refused without being looked up; nil: look it up.
func (g *guesses) refusal(addr netip.Addr, token string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now(); now.Sub(g.began) >= guessTime {
		g.began = now
		clear(g.failed)
		clear(g.wrong)
	}
	if why := g.wrong[sha256.Sum256([]byte(token))]; why != nil {
		return why
	}
	if g.failed[g.counted(addr)] >= maxGuesses {
		return &Refusal{http.StatusTooManyRequests, CodeTooMany,
			"too many tokens from this address were wrong: wait a minute"}
	}
	return nil
}

// add counts a token that was looked up and is wrong, once however many requests showed it
// at a time.
func (g *guesses) add(addr netip.Addr, token string, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	hash := sha256.Sum256([]byte(token))
	if g.wrong[hash] != nil {
		return
	}
	if len(g.wrong) < maxWrong {
		g.wrong[hash] = why
	}
	g.failed[g.counted(addr)]++
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

package httpd

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/connlimit"
)

// Limits on look-ups of invalid tokens in meta. Tokens are too long to guess, so a valid one is
// never refused for good: after maxGuesses invalid tokens of one kind (prefix and address), further
// tokens of that kind are looked up one at a time, except those found valid before. The methods of
// guesses run on the goroutines of requests.

const (
	// maxGuesses is the number of invalid tokens of one kind within guessTime after which others of
	// that kind are looked up one at a time. All kinds beyond maxKinds share one count.
	maxGuesses = 10
	guessTime  = time.Minute
	maxKinds   = 1024
	// maxRemembered bounds the remembered invalid tokens, and the valid ones.
	maxRemembered = 4096
	// kindLength is the length of a token's counted prefix, in bytes.
	kindLength = len("percolator_") + 4
)

// kind is the key of the counts of invalid tokens.
type kind struct {
	addr      netip.Addr // of an IPv6 address only the /64 network, by connlimit.Network
	beginning string
}

// guesses counts the invalid tokens of the current minute by kind.
type guesses struct {
	now func() time.Time

	mu     sync.Mutex
	began  time.Time
	failed map[kind]int
	wrong  map[[sha256.Size]byte]error // errors by the token's hash
	valid  map[[sha256.Size]byte]bool  // tokens that were found valid
}

func newGuesses(now func() time.Time) *guesses {
	return &guesses{
		now: now, failed: map[kind]int{}, wrong: map[[sha256.Size]byte]error{},
		valid: map[[sha256.Size]byte]bool{},
	}
}

// known returns the error of a token that was found invalid in this minute. Nil means that the
// token must be looked up.
func (g *guesses) known(token string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tick()
	return g.wrong[sha256.Sum256([]byte(token))]
}

// suspect reports whether the token must be looked up one at a time: its kind has reached
// maxGuesses and it is not remembered as valid.
func (g *guesses) suspect(addr netip.Addr, token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tick()
	return g.failed[g.counted(addr, token)] >= maxGuesses && !g.valid[sha256.Sum256([]byte(token))]
}

// tick clears the counts and the invalid tokens if guessTime has passed since it last did. It keeps
// the valid tokens, whose number add bounds. The caller holds mu.
func (g *guesses) tick() {
	if now := g.now(); now.Sub(g.began) >= guessTime {
		g.began = now
		clear(g.failed)
		clear(g.wrong)
	}
}

// add records the outcome of a look-up; why is nil for a valid token. An invalid token counts once,
// however many concurrent requests carried it.
func (g *guesses) add(addr netip.Addr, token string, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	hash := sha256.Sum256([]byte(token))
	if why == nil {
		if len(g.valid) >= maxRemembered {
			clear(g.valid)
		}
		g.valid[hash] = true
		return
	}
	delete(g.valid, hash)
	if g.wrong[hash] != nil {
		return
	}
	if len(g.wrong) < maxRemembered {
		g.wrong[hash] = why
	}
	g.failed[g.counted(addr, token)]++
}

// counted returns the kind of a token.
func (g *guesses) counted(addr netip.Addr, token string) kind {
	k := kind{connlimit.Network(addr), strings.Clone(token[:min(len(token), kindLength)])}
	if _, known := g.failed[k]; !known && len(g.failed) >= maxKinds {
		return kind{}
	}
	return k
}

package httpd

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/connlimit"
)

// This file bounds the look-ups of wrong tokens in meta. Tokens are too long to be guessed, so this
// never refuses a valid one: after many wrong tokens with one prefix from one address, others of that
// kind are looked up one at a time. Requests call it on their goroutines.

const (
	// maxGuesses is how many wrong tokens of one kind may be shown within guessTime until others
	// of it are looked up one at a time. All kinds beyond maxKinds share one count.
	maxGuesses = 10
	guessTime  = time.Minute
	maxKinds   = 1024
	// maxRemembered is how many wrong tokens, and how many valid ones, are remembered.
	maxRemembered = 4096
	// kindLength is the length of the prefix by which tokens are counted, in bytes.
	kindLength = len("percolator_") + 4
)

// kind is the key by which wrong tokens are counted.
type kind struct {
	addr      netip.Addr // or its network, see connlimit.Network
	beginning string
}

// guesses counts the wrong tokens of the current minute by kind.
type guesses struct {
	now func() time.Time

	mu     sync.Mutex
	began  time.Time
	failed map[kind]int
	wrong  map[[sha256.Size]byte]error // what was wrong, by the token's hash
	valid  map[[sha256.Size]byte]bool  // tokens that were found valid
}

func newGuesses(now func() time.Time) *guesses {
	return &guesses{
		now: now, failed: map[kind]int{}, wrong: map[[sha256.Size]byte]error{},
		valid: map[[sha256.Size]byte]bool{},
	}
}

// known returns the error of a token that was found wrong in this minute; nil: look it up.
func (g *guesses) known(token string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tick()
	return g.wrong[sha256.Sum256([]byte(token))]
}

// suspect reports whether the token is to be looked up one at a time: many wrong ones of its kind were
// shown, and it has not been found valid before.
func (g *guesses) suspect(addr netip.Addr, token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tick()
	return g.failed[g.counted(addr, token)] >= maxGuesses && !g.valid[sha256.Sum256([]byte(token))]
}

// tick begins another minute if one is over. Valid tokens are kept until there are too many. The caller
// holds mu.
func (g *guesses) tick() {
	if now := g.now(); now.Sub(g.began) >= guessTime {
		g.began = now
		clear(g.failed)
		clear(g.wrong)
	}
}

// add counts a token that was looked up. One that is wrong, for the reason why, counts once however
// many requests showed it at a time; why is nil if it is valid.
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

// counted returns the kind by which a token is counted.
func (g *guesses) counted(addr netip.Addr, token string) kind {
	k := kind{connlimit.Network(addr), strings.Clone(token[:min(len(token), kindLength)])}
	if _, known := g.failed[k]; !known && len(g.failed) >= maxKinds {
		return kind{}
	}
	return k
}

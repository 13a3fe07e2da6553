package httpd

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxLookUps bounds the concurrent look-ups of tokens. lookUpTime bounds one, including its
	// wait; together with actTime it is below the write timeout.
	maxLookUps = 16
	lookUpTime = 4 * time.Second
)

// Tokens finds the users of tokens, and bounds the look-ups of invalid ones. Its methods may be called
// concurrently.
type Tokens struct {
	find     func(ctx context.Context, token string) (User, error)
	kept     time.Duration
	now      func() time.Time
	guesses  *guesses
	lookUps  chan struct{} // semaphore of look-ups
	suspects chan struct{} // semaphore of look-ups of suspect tokens

	mu    sync.Mutex
	found map[[sha256.Size]byte]found
}

// found is the user of a valid token, until the time at which it is looked up again.
type found struct {
	user  User
	until time.Time
}

// NewTokens returns Tokens that find looks up, as Operators.Identify does. The user of a valid
// token is kept for at most the duration kept since its look-up began, so a revocation takes effect
// within that time. If kept is 0, each use looks the token up.
func NewTokens(find func(ctx context.Context, token string) (User, error), kept time.Duration) *Tokens {
	return &Tokens{
		find: find, kept: kept, now: time.Now, guesses: newGuesses(time.Now), lookUps: make(chan struct{}, maxLookUps),
		suspects: make(chan struct{}, 1), found: map[[sha256.Size]byte]found{},
	}
}

// User returns the user of the token, which came from addr. A token that was recently found invalid
// is refused without a look-up. Look-ups of suspect tokens run one at a time and do not delay those
// of other tokens. Errors are *Refusals, or those of find.
func (t *Tokens) User(ctx context.Context, addr netip.Addr, token string) (User, error) {
	if user, ok := t.recent(token); ok {
		return user, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	room := t.lookUps
	if t.guesses.suspect(addr, token) {
		room = t.suspects
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	case <-ctx.Done():
		return User{}, &Refusal{http.StatusServiceUnavailable, CodeUnavailable,
			"too many token look-ups in flight: try again"}
	}
	if err := t.guesses.known(token); err != nil {
		return User{}, err
	}
	began := t.now()
	user, err := t.find(ctx, token)
	var refusal *Refusal
	switch {
	case err == nil:
		t.guesses.add(addr, token, nil)
		t.keep(token, user, began)
	case errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized:
		t.guesses.add(addr, token, refusal)
	}
	return user, err
}

// recent returns the user of a token that was valid a moment ago.
func (t *Tokens) recent(token string) (User, bool) {
	if t.kept == 0 {
		return User{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.found[sha256.Sum256([]byte(token))]
	return f.user, ok && t.now().Before(f.until)
}

// keep remembers the user of a token whose look-up began at the time.
func (t *Tokens) keep(token string, user User, began time.Time) {
	if t.kept == 0 {
		return
	}
	until := began.Add(t.kept)
	if user.Expires.Before(until) {
		until = user.Expires
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.found) >= maxRemembered {
		clear(t.found)
	}
	t.found[sha256.Sum256([]byte(token))] = found{user, until}
}

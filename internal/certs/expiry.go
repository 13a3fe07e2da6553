package certs

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
)

// ExpiryWarning is how long before its end a certificate is warned of.
const ExpiryWarning = 30 * 24 * time.Hour

const (
	// watchEvery is how often Watch looks, warnAgain how often it repeats itself.
	watchEvery = time.Hour
	warnAgain  = 24 * time.Hour
)

// Expiry is when a certificate in use ends.
type Expiry struct {
	File     string // without its folder
	NotAfter time.Time
}

// Expired reports whether the certificate has ended: connections that need it fail.
func (e Expiry) Expired(now time.Time) bool { return now.After(e.NotAfter) }

// Problem says what to do about a certificate that has ended, or will within ExpiryWarning; empty
// if there is time.
func (e Expiry) Problem(now time.Time) string {
	end := e.NotAfter.UTC().Format(time.RFC3339)
	remedy := "make a new one with `percolator cert` and copy it there, the node need not be restarted"
	switch left := e.NotAfter.Sub(now); {
	case left < 0:
		return fmt.Sprintf("%s EXPIRED on %s, new connections fail: %s", e.File, end, remedy)
	case left < ExpiryWarning:
		return fmt.Sprintf("%s expires on %s, %s: %s", e.File, end, inDays(left), remedy)
	}
	return ""
}

// inDays says when, to the day: whoever repeats it daily says something new.
func inDays(left time.Duration) string {
	switch days := int(left / (24 * time.Hour)); days {
	case 0:
		return "within a day"
	case 1:
		return "in 1 day"
	default:
		return fmt.Sprintf("in %d days", days)
	}
}

// Expiries are the ends of the own certificate and of the authority that has signed it, as the
// files are now.
func (f *Files) Expiries() []Expiry { return f.now().expiries(f.source) }

func (l *loaded) expiries(s Source) []Expiry {
	if l.pair == nil || l.pair.Leaf == nil {
		return nil
	}
	own := Expiry{File: filepath.Base(s.Cert), NotAfter: l.pair.Leaf.NotAfter}
	// A file may hold several authorities while one replaces another: the last of ours counts.
	authority := Expiry{File: filepath.Base(s.CA)}
	for _, c := range l.authorities {
		if l.pair.Leaf.CheckSignatureFrom(c) == nil && c.NotAfter.After(authority.NotAfter) {
			authority.NotAfter = c.NotAfter
		}
	}
	if authority.NotAfter.IsZero() { // signed by an intermediate
		return []Expiry{own}
	}
	return []Expiry{own, authority}
}

// problems are those of all certificates.
func problems(all []Expiry, now time.Time) (text string, expired bool) {
	var found []string
	for _, e := range all {
		if p := e.Problem(now); p != "" {
			found = append(found, p)
		}
		expired = expired || e.Expired(now)
	}
	return strings.Join(found, "; "), expired
}

// Watch writes to the log that certificates have ended, or will within ExpiryWarning: at once,
// daily, and when one is replaced, until ctx ends. The files' owner runs and joins it.
func (f *Files) Watch(ctx context.Context) {
	look := time.NewTimer(0)
	defer look.Stop()
	said, at := "", time.Time{}
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		look.Reset(watchEvery)
		now := time.Now()
		text, expired := problems(f.Expiries(), now)
		if text == "" || text == said && now.Sub(at) < warnAgain {
			continue
		}
		said, at = text, now
		f.warn(text, expired)
	}
}

func (f *Files) warn(text string, expired bool) {
	level := slog.LevelWarn
	if expired {
		level = slog.LevelError
	}
	f.logger.LogAttrs(context.Background(), level, "a certificate is at its end",
		slog.String("problem", text))
}

// soon marks a certificate for people who look at a folder; empty if there is time.
func soon(c *x509.Certificate, now time.Time) string {
	if left := c.NotAfter.Sub(now); left < ExpiryWarning {
		return "expires " + inDays(left)
	}
	return ""
}

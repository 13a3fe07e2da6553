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

// ExpiryWarning is the remaining validity below which a certificate is reported as expiring.
const ExpiryWarning = 30 * 24 * time.Hour

const (
	// watchEvery is the interval of Watch's checks, warnAgain that of repeated warnings.
	watchEvery = time.Hour
	warnAgain  = 24 * time.Hour
)

// Expiry is the end of the validity of a certificate in use.
type Expiry struct {
	File     string // without its folder
	NotAfter time.Time
}

// Expired reports whether the certificate has expired: connections that need it fail.
func (e Expiry) Expired(now time.Time) bool { return now.After(e.NotAfter) }

// Problem describes the expiry, with a remedy, of a certificate that has expired or will within
// ExpiryWarning. Otherwise it returns "".
func (e Expiry) Problem(now time.Time) string {
	end := e.NotAfter.UTC().Format(time.RFC3339)
	remedy := "create a new one with `percolator cert` and copy it there; no restart is needed"
	switch left := e.NotAfter.Sub(now); {
	case left < 0:
		return fmt.Sprintf("%s EXPIRED on %s, new connections fail: %s", e.File, end, remedy)
	case left < ExpiryWarning:
		return fmt.Sprintf("%s expires on %s, %s: %s", e.File, end, inDays(left), remedy)
	}
	return ""
}

// inDays returns the remaining time in whole days, so that the warning of each day has another
// text.
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

// Expiries returns the expiry of the node's own certificate and of the authority that signed it, as
// currently loaded.
func (f *Files) Expiries() []Expiry { return f.now().expiries(f.source) }

func (l *loaded) expiries(s Source) []Expiry {
	if l.pair == nil || l.pair.Leaf == nil {
		return nil
	}
	own := Expiry{File: filepath.Base(s.Cert), NotAfter: l.pair.Leaf.NotAfter}
	// During a replacement the file contains several authorities: of those that signed this
	// certificate, use the one that expires last.
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

// problems joins the problems of all certificates.
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

// Watch logs certificates that have expired, or will within ExpiryWarning: at once, daily, and when
// one is replaced, until ctx ends. The owner of the Files runs and joins it.
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
	f.logger.LogAttrs(context.Background(), level, "certificate expires soon or has expired",
		slog.String("problem", text))
}

// soon returns a mark for a certificate that expires within ExpiryWarning, else "".
func soon(c *x509.Certificate, now time.Time) string {
	if left := c.NotAfter.Sub(now); left < ExpiryWarning {
		return "expires " + inDays(left)
	}
	return ""
}

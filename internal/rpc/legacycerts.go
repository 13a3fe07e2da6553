package rpc

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

// This file takes note of clients whose certificates are of before there were roles: they may
// do everything that an operator may. Handlers tell of each call, on gRPC's goroutines;
// whoever makes a node's status asks.

const (
	// maxLegacyCerts bounds the names, legacyCertKept how long one is kept after its last call.
	maxLegacyCerts = 16
	legacyCertKept = 24 * time.Hour
	// warnAgain is how often the log is told of one name.
	warnAgain = 24 * time.Hour
)

// LegacyCerts are the clients of a node that use certificates without a role of their own. The
// zero value has none. All methods may be used concurrently.
type LegacyCerts struct {
	mu     sync.Mutex
	names  map[string]*rolelessUse
	others rolelessUse // all names for which there was no room
}

// rolelessUse is what is known of one name.
type rolelessUse struct {
	calls        int       // under way, streams too; of others, all
	seen, warned time.Time // the last call; the last line in the log
}

// LegacyClient is a name in such certificates.
type LegacyClient struct {
	Name string
	Seen time.Time // now, if a call is under way
}

// Seen takes note of somebody who was let in without a call of this package, by HTTP.
func (r *LegacyCerts) Seen(who Caller, logger *slog.Logger, now func() time.Time) {
	r.call(who, logger, now)()
}

// call takes note of a call, and returns what is to be called at its end.
func (r *LegacyCerts) call(who Caller, logger *slog.Logger, now func() time.Time) (end func()) {
	if who.Role != certs.Client {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now())
	u := r.names[who.Name]
	if u == nil {
		if len(r.names) >= maxLegacyCerts {
			r.others.calls++
			if now().Sub(r.others.warned) >= warnAgain {
				r.others.warned = now()
				logger.Warn("more clients than are counted have certificates that name no role, and count "+
					"as operators", slog.Int("counted", maxLegacyCerts), slog.String("name", who.Name),
					slog.Int("calls_uncounted", r.others.calls))
			}
			return func() {}
		}
		if r.names == nil {
			r.names = map[string]*rolelessUse{}
		}
		u = &rolelessUse{}
		r.names[who.Name] = u
	}
	u.calls, u.seen = u.calls+1, now()
	if u.seen.Sub(u.warned) >= warnAgain {
		u.warned = u.seen
		logger.Warn("a client's certificate names no role and counts as an operator's",
			slog.String("name", who.Name), slog.String("remedy",
				"replace it by one of `percolator cert create-client NAME --role ROLE --ca-dir CA`"))
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		u.calls, u.seen = u.calls-1, now()
	}
}

// forget drops names that nobody has used for long.
func (r *LegacyCerts) forget(now time.Time) {
	maps.DeleteFunc(r.names, func(_ string, u *rolelessUse) bool {
		return u.calls == 0 && now.Sub(u.seen) > legacyCertKept
	})
}

// Clients returns those of the last day, by name.
func (r *LegacyCerts) Clients(now time.Time) (out []LegacyClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	for _, name := range slices.Sorted(maps.Keys(r.names)) {
		c := LegacyClient{Name: name, Seen: r.names[name].seen}
		if r.names[name].calls > 0 {
			c.Seen = now
		}
		out = append(out, c)
	}
	return out
}

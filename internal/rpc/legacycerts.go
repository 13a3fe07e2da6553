package rpc

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

// Record of clients whose certificates predate roles: they have the Operator role. Handlers
// record each call, on gRPC's goroutines; the node's status reads the record.

const (
	// maxLegacyCerts is the maximum number of names, legacyCertKept their retention after the
	// last call.
	maxLegacyCerts = 16
	legacyCertKept = 24 * time.Hour
	// warnAgain is the interval between warnings about one name.
	warnAgain = 24 * time.Hour
)

// LegacyCerts records the clients of a node whose certificates have no role. The zero value is
// empty and ready to use. All methods may be called concurrently.
type LegacyCerts struct {
	mu     sync.Mutex
	names  map[string]*rolelessUse
	others rolelessUse // all names beyond maxLegacyCerts together
}

// rolelessUse is the usage of one name.
type rolelessUse struct {
	calls        int       // number of running calls and streams; in others, of all calls
	seen, warned time.Time // last call; last warning
}

// LegacyClient is a name in a certificate without a role.
type LegacyClient struct {
	Name string
	Seen time.Time // end of the last call; now, if a call is running
}

// Seen records a client authenticated outside of this package, over HTTP.
func (r *LegacyCerts) Seen(who Caller, logger *slog.Logger, now func() time.Time) {
	r.call(who, logger, now)()
}

// call records a call of a client whose certificate has no role. The caller must call end when the
// call ends.
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

// forget removes names unused for legacyCertKept.
func (r *LegacyCerts) forget(now time.Time) {
	maps.DeleteFunc(r.names, func(_ string, u *rolelessUse) bool {
		return u.calls == 0 && now.Sub(u.seen) > legacyCertKept
	})
}

// Clients returns up to maxLegacyCerts clients of the last day, sorted by name.
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

package httpd

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/percolator-go/percolator/internal/connlimit"
)

// Limits on connections and requests. A request acquires a place for its connection while it is
// answered. Probes need none, so that neither busy nor silent connections delay them.

// placesFor returns the limits of a server.
func placesFor(o Options) connlimit.Config {
	requests := cmp.Or(o.MaxRequests, 256)
	return connlimit.Config{
		Pending: cmp.Or(o.MaxPending, 256), Admitted: requests, Share: (requests + 1) / 2,
	}
}

// connectionKey is the key of a request's *connlimit.Conn in its context.
type connectionKey struct{}

// withConnection implements http.Server's ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// isHealth reports whether the request is a probe's.
func isHealth(req *http.Request) bool { return req.URL.Path == "/livez" || req.URL.Path == "/readyz" }

// placed passes probes and requests that acquire a place to next.
func placed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c, ok := req.Context().Value(connectionKey{}).(*connlimit.Conn); ok && !isHealth(req) {
			if err := c.Admit(); err != nil {
				w.Header().Set("Retry-After", "1")
				text(w, http.StatusServiceUnavailable, err.Error()+": try again")
				return
			}
			defer c.Release()
		}
		next.ServeHTTP(w, req)
	})
}

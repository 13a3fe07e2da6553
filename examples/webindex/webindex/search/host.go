package search

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// onlyOwnHost refuses requests for hosts other than localhost, addresses and the served name.
// Otherwise a page of any site could make its own name resolve to this machine and read the answers
// in a visitor's browser (DNS rebinding).
func onlyOwnHost(served string, next http.Handler) http.Handler {
	served = hostOf(served)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		_, err := netip.ParseAddr(host)
		if err == nil || host == "" || host == "localhost" || host == served {
			next.ServeHTTP(w, r)
			return
		}
		const refusal = "not a name of this server: ask by its address, or give --search the name"
		http.Error(w, refusal, http.StatusMisdirectedRequest)
	})
}

// hostOf returns the host of host[:port], in lower case and without a trailing dot.
func hostOf(hostport string) string {
	host := strings.Trim(hostport, "[]")
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

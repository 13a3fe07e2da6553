package httpd

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Protection against DNS rebinding. A site can make its own name resolve to this machine, so that
// a browser reads this server on behalf of the site's page. Such requests carry the site's name in
// their Host header. The server therefore answers only requests whose host is an IP address, which
// cannot be rebound, localhost, or one of the node's own names.

// maxHostShown bounds the part of an unknown host that the answer repeats, in bytes.
const maxHostShown = 253

// onlyOwnHost refuses requests for hosts other than the node's.
func onlyOwnHost(names func() []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if OwnHost(req.Host, names) {
			next.ServeHTTP(w, req)
			return
		}
		host := hostOf(req.Host)
		text(w, http.StatusMisdirectedRequest, fmt.Sprintf(
			"%q is not a name of this node: use its IP address, or start it with --http-host and the name",
			host[:min(len(host), maxHostShown)]))
	})
}

// OwnHost reports whether a request's host, with or without a port, is the node's: an IP address, localhost,
// or one of the names. A request without a host (HTTP/1.0) also passes, since no browser sends one.
func OwnHost(hostport string, names func() []string) bool {
	host := hostOf(hostport)
	if host == "" || host == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return names != nil && slices.ContainsFunc(names(), func(name string) bool {
		return hostOf(name) == host
	})
}

// hostOf returns the host of host[:port], in lower case and without a trailing dot.
func hostOf(hostport string) string {
	host := strings.Trim(hostport, "[]") // of an IPv6 address without a port
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

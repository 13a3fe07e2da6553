package httpd

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A page of any site can have its own name resolve to this machine, or to another one
// behind the same firewall, and then a browser reads what is served here on that page's
// behalf (DNS rebinding). Its requests name the site in their Host. So a request has to
// name a host that is surely meant: an address, which nobody can rebind, localhost, or a
// name that the node knows as its own. It is called on the goroutine of each request.

// maxHostShown bounds how much of an unknown host is repeated in the answer.
const maxHostShown = 253

// onlyOwnHost refuses requests for hosts that are not the node's.
func onlyOwnHost(names func() []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host := hostOf(req.Host)
		if ownHost(host, names) {
			next.ServeHTTP(w, req)
			return
		}
		text(w, http.StatusMisdirectedRequest, fmt.Sprintf(
			"%q is not a name of this node: ask by its address, or start it with --http-host and the name",
			host[:min(len(host), maxHostShown)]))
	})
}

// ownHost reports whether the host of a request is surely meant. Clients that name none
// (HTTP/1.0) are no browsers.
func ownHost(host string, names func() []string) bool {
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

// hostOf is the host of host[:port], in lower case and without the dot of a full name.
func hostOf(hostport string) string {
	host := strings.Trim(hostport, "[]") // of an IPv6 address without a port
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

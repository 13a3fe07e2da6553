package rpc

import (
	"fmt"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// Hints about proxies for failed connections.

// proxyNote returns a note for the error of a failed connection: the proxy that HTTPS_PROXY
// and NO_PROXY select for the address, without its user and password, and whether the
// connection used it. It is empty if there is no proxy.
func proxyNote(addr string, used bool) string {
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: addr})
	switch {
	case err != nil && used:
		return fmt.Sprintf(" (HTTPS_PROXY: %v)", err)
	case err != nil || proxy == nil:
		return ""
	case used:
		return fmt.Sprintf(" (through the proxy %s of HTTPS_PROXY)", proxy.Host)
	}
	return fmt.Sprintf(" (directly: HTTPS_PROXY names the proxy %s, which is used only on request, by --proxy or "+
		"ClientConfig.Proxy)", proxy.Host)
}

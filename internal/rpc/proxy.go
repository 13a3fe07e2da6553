package rpc

import (
	"fmt"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// This file explains failed connections where the environment names a proxy. It keeps nothing.

// proxyNote returns, for the error of a failed connection, which proxy HTTPS_PROXY and NO_PROXY name
// for the address, and whether the connection used it; empty if they name none. The proxy's user and
// password are left out.
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

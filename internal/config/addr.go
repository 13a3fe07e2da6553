package config

import (
	"net"
	"strconv"
)

// HTTPAddr is where the HTTP listener binds: HTTP with AutoHTTP worked out; empty means none.
func (c *Config) HTTPAddr() string {
	if c.HTTP != AutoHTTP {
		return c.HTTP
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "" // Validate reports it
	}
	port, err := portOf(c.Listen)
	if err != nil {
		return ""
	}
	if port != 0 {
		port += httpOffset
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// IsLoopback reports whether the host of host:port is surely this machine only. Of names only localhost is taken for
// one; an empty host means all interfaces.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

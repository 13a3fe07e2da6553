package config

import (
	"fmt"
	"net"
	"strconv"

	"github.com/percolator-go/percolator/internal/rpc"
)

// Offsets of the other listeners' ports from Listen's.
const (
	peerOffset   = 1
	gossipOffset = 2
	httpOffset   = 3

	gatewayOffset = 4
)

// HTTPAddr returns the address of the HTTP listener, with AutoHTTP resolved; empty means none.
// With Certs the derived address is a loopback one unless InsecureHTTP is set, also with HTTPTLS.
func (c *Config) HTTPAddr() string {
	addr := c.besideListen(c.HTTP, httpOffset)
	if _, port, err := net.SplitHostPort(addr); err == nil && c.HTTP == AutoHTTP && c.Certs != "" &&
		!c.InsecureHTTP && !IsLoopback(addr) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// GatewayAddr returns the address of the gateway, with AutoPort resolved; empty means none.
func (c *Config) GatewayAddr() string { return c.besideListen(c.Gateway, gatewayOffset) }

// PeerAddr returns the address of the listener for other nodes, with AutoPort resolved; empty
// means the node runs alone.
func (c *Config) PeerAddr() string { return c.besideListen(c.Peer, peerOffset) }

// GossipAddr returns the address for gossip, with AutoPort resolved; empty means none.
func (c *Config) GossipAddr() string { return c.besideListen(c.Gossip, gossipOffset) }

// besideListen resolves an automatic address: Listen's host with the port raised by offset; a free
// port if Listen's is 0; empty without Listen.
func (c *Config) besideListen(addr string, offset int) string {
	if addr != AutoPort {
		return addr
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
		port += offset
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// JoinAddrs returns the addresses in Join, with DefaultPort added to those without a port.
func (c *Config) JoinAddrs() []string {
	out := make([]string, len(c.Join))
	for i, addr := range c.Join {
		out[i] = rpc.WithPort(addr)
	}
	return out
}

// AdvertisedAddr returns the address to announce for a listener that has bound an address:
// Advertise for Listen, and Advertise's host with the listener's own port for the others; without
// Advertise, the bound address. A wildcard address becomes the machine's first non-loopback
// address; without one it returns an error.
func (c *Config) AdvertisedAddr(bound string, listen bool) (string, error) {
	if listen && c.Advertise != "" {
		return c.Advertise, nil
	}
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return "", fmt.Errorf("config: %q is not of the form host:port", bound)
	}
	if c.Advertise != "" {
		if host, _, err = net.SplitHostPort(c.Advertise); err != nil {
			return "", fmt.Errorf("config: %q is not of the form host:port", c.Advertise)
		}
		return net.JoinHostPort(host, port), nil
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return bound, nil
	}
	ip, err := ownAddress()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(ip.String(), port), nil
}

// ownAddress returns a non-loopback address of this machine.
func ownAddress() (net.IP, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("config: list the addresses of this machine: %w", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP, nil
		}
	}
	return nil, fmt.Errorf("config: this machine has no address that others can reach; name one (--advertise)")
}

// IsLoopback reports whether the host of host:port is a loopback address. Of names only localhost
// counts; an empty host means all interfaces.
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

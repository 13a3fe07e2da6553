package rpc

import (
	"net"
	"strconv"
	"strings"

	"github.com/percolator-go/percolator/internal/txn"
)

// This file has the addresses that clients are given, and what can be told of those at
// which no node answers.

// DefaultPort is that of an address that has none.
const DefaultPort = "7800"

// WithPort adds DefaultPort to a host that has no port.
func WithPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil || strings.Contains(addr, "/") {
		return addr // the latter is a name of gRPC's own, such as dns:///host
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), DefaultPort)
}

// CheckAddress returns an ErrInvalid unless the address is a host, a host:port or a name of
// gRPC's own, such as dns:///host.
func CheckAddress(addr string) error {
	if strings.HasPrefix(addr, "http://") || strings.HasPrefix(addr, "https://") {
		return txn.Invalid("address %q: give host:port, without http://, of a node's --listen", addr)
	}
	if strings.Contains(addr, "/") {
		return nil
	}
	host, port, err := net.SplitHostPort(WithPort(addr))
	switch _, notNumber := strconv.ParseUint(port, 10, 16); {
	case err != nil, host == "", strings.Contains(host, ":") && net.ParseIP(host) == nil:
		return txn.Invalid("address %q: it has to be host or host:port", addr)
	case notNumber != nil:
		return txn.Invalid("address %q: the port has to be a number of at most 65535", addr)
	}
	return nil
}

// Diagnose says what a failed connection means, and whether trying again is in vain. The
// text ends with a colon; it is empty for what says enough by itself.
func Diagnose(failure string) (text string, clear bool) {
	has := func(part string) bool { return strings.Contains(failure, part) }
	switch {
	case has("connection refused"):
		return "nothing listens there: ", true
	case has("no such host"):
		return "there is no such host: ", true
	case has("looked like an HTTP/1.1 header"), has("frame too large"):
		return "it answers in HTTP/1, as a console does and no node's --listen address: ", true
	case has("tls: first record does not look like a TLS handshake"):
		return "it speaks plain text, and this process TLS: ", true
	case has("remote error: tls: bad certificate"): // in TLS 1.3 it comes after the handshake
		return "it refuses this certificate, which is of another authority or revoked: ", false
	case has("error reading server preface"):
		return "it hangs up on plain text, as a node with certificates does: ", false
	case has("x509: certificate is valid for"), has("x509: certificate is not valid for any names"):
		return "its certificate lacks that host: ", true
	case has("tls: "):
		return "the certificates do not match: ", false
	}
	return "", false
}

package rpc

import (
	"net"
	"strconv"
	"strings"

	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
)

// Addresses for clients, and diagnoses of addresses at which no node answers.

// DefaultPort is the port of an address without one.
const DefaultPort = "7800"

// WithPort adds DefaultPort to a host that has no port.
func WithPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil || strings.Contains(addr, "/") {
		return addr // with a slash it is a gRPC target, such as dns:///host
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), DefaultPort)
}

// CheckAddress returns an ErrInvalid unless the address is a host, a host:port or a gRPC
// target, such as dns:///host.
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
		return txn.Invalid("address %q: it must be host or host:port", addr)
	case notNumber != nil:
		return txn.Invalid("address %q: the port must be a number of at most 65535", addr)
	}
	return nil
}

// Causes of failed connections. Dial's errors wrap one of them if the cause is known.
// ErrCertificates is every failure of TLS without a cause of its own here, such as a missing or
// expired certificate or one of an unknown authority.
var (
	ErrNobody       = coded.New("", "nothing listens there")
	ErrNoHost       = coded.New("", "there is no such host")
	ErrHTTP1        = coded.New("", "it answers in HTTP/1, as a console does and no node's --listen address")
	ErrPlainText    = coded.New("", "it speaks plain text, and this process TLS")
	ErrRefusedCert  = coded.New("", "it refuses the certificate of this process, which is revoked or not for this use")
	ErrWantsTLS     = coded.New("", "it closes plain-text connections, as a node with certificates does")
	ErrWrongHost    = coded.New("", "its certificate lacks that host")
	ErrCertificates = coded.New("", "the certificates do not match")
	// ErrOtherService is also returned for requests that a node does not implement.
	ErrOtherService = coded.New("", "it is a node's port for other nodes, or another program's")
)

// Diagnose returns whether retrying a failed connection is futile, and the cause of the failure, or
// nil for any failure not listed here. gRPC returns the errors of connections and of TLS as texts
// only: this is the one place that parses them.
func Diagnose(failure string) (futile bool, code error) {
	has := func(part string) bool { return strings.Contains(failure, part) }
	switch {
	case has("connection refused"):
		return true, ErrNobody
	case has("no such host"):
		return true, ErrNoHost
	case has("looked like an HTTP/1.1 header"), has("frame too large"):
		return true, ErrHTTP1
	case has("tls: first record does not look like a TLS handshake"):
		return true, ErrPlainText
	case has("remote error: tls: bad certificate"): // in TLS 1.3 the alert follows the handshake
		return false, ErrRefusedCert
	case has("error reading server preface") && !has("remote error: tls: "):
		return false, ErrWantsTLS
	case has("x509: certificate is valid for"), has("x509: certificate is not valid for any names"):
		return true, ErrWrongHost
	case has("tls: "), has("x509: "):
		return false, ErrCertificates
	}
	return false, nil
}

package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Errors of this package. Messages say which file or certificate, and what to do.
var (
	// ErrRole: the certificate is of the authority, but for something else.
	ErrRole = errors.New("certs: wrong role")
	// ErrExpired: the certificate's time is over, or has not come.
	ErrExpired = errors.New("certs: certificate expired")
	// ErrExists: the file is there already, and overwriting was not asked for.
	ErrExists = errors.New("certs: file exists")
	// ErrFiles: a file is missing or unsound.
	ErrFiles = errors.New("certs: unusable file")
)

// Role is what a certificate's holder may be.
type Role string

// The roles.
const (
	Node   Role = "node"   // a member of the cluster: everything
	Client Role = "client" // a client of the public interface
)

const scheme = "percolator"

// identity is the URI that carries role and name.
func identity(role Role, name string) *url.URL {
	return &url.URL{Scheme: scheme, Host: string(role), Path: "/" + name}
}

// Identity is the role and the name in a certificate; an empty role if there is none of ours.
func Identity(cert *x509.Certificate) (Role, string) {
	for _, u := range cert.URIs {
		if u.Scheme == scheme {
			return Role(u.Host), strings.TrimPrefix(u.Path, "/")
		}
	}
	return "", ""
}

// checkRole refuses a certificate that has none of the roles.
func checkRole(cert *x509.Certificate, accept []Role) error {
	role, name := Identity(cert)
	for _, a := range accept {
		if role == a {
			return nil
		}
	}
	if role == "" {
		return fmt.Errorf("%w: certificate %q has none, %s is asked for", ErrRole,
			cert.Subject.CommonName, list(accept))
	}
	return fmt.Errorf("%w: certificate %q is for a %s, %s is asked for", ErrRole, name, role,
		list(accept))
}

func list(roles []Role) string {
	var names []string
	for _, r := range roles {
		names = append(names, string(r))
	}
	return strings.Join(names, " or ")
}

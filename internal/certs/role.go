package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Errors of this package. Messages say which file or certificate, and what to do.
var (
	// ErrRole reports that the certificate is of the authority, but for something else.
	ErrRole = errors.New("certs: wrong role")
	// ErrExpired reports that the certificate's time is over, or has not come.
	ErrExpired = errors.New("certs: certificate expired")
	// ErrExists reports that the file is there already, and overwriting was not asked for.
	ErrExists = errors.New("certs: file exists")
	// ErrFiles reports that a file is missing or unsound.
	ErrFiles = errors.New("certs: unusable file")
)

// Role is what a certificate's holder may be.
type Role string

// The roles. Each but Client may do what those above it may. Which call takes which is a
// table in internal/rpc.
const (
	Reader   Role = "reader"   // reads data, and what the cluster says of itself
	Writer   Role = "writer"   // runs transactions
	Observer Role = "observer" // works for observers: starts back-fills
	Operator Role = "operator" // steers the cluster
	Node     Role = "node"     // a member of the cluster: everything
	// Client is what certificates say that were made before clients had roles of their
	// own. It counts as Operator, which every client was then.
	Client Role = "client"
)

// ClientRoles are those that a client's certificate may be made for, the least one first.
func ClientRoles() []Role { return []Role{Reader, Writer, Observer, Operator} }

// AllRoles are those that the public interface is served to.
func AllRoles() []Role { return append(ClientRoles(), Node, Client) }

// Includes reports whether who has the role may do what takes the other one. A role that
// is not known includes nothing, and nothing includes it.
func (r Role) Includes(other Role) bool {
	if r == Client {
		r = Operator
	}
	ladder := append(ClientRoles(), Node)
	has, needs := slices.Index(ladder, r), slices.Index(ladder, other)
	return has >= 0 && needs >= 0 && has >= needs
}

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
	if slices.Contains(accept, role) {
		return nil
	}
	if role == "" {
		return fmt.Errorf("%w: certificate %q has none, %s is asked for", ErrRole,
			cert.Subject.CommonName, list(accept))
	}
	return fmt.Errorf("%w: certificate %q has the role %s, %s is asked for", ErrRole, name, role,
		list(accept))
}

func list(roles []Role) string {
	var names []string
	for _, r := range roles {
		names = append(names, string(r))
	}
	return strings.Join(names, " or ")
}

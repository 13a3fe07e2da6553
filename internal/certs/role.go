package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Errors of this package. Messages name the file or certificate and a remedy.
var (
	// ErrRole reports that the authority issued the certificate, but for another role or for none.
	ErrRole = errors.New("certs: wrong role")
	// ErrExpired reports that the certificate has expired or is not yet valid.
	ErrExpired = errors.New("certs: certificate is not valid now")
	// ErrExists reports that the file already exists, and Request.Force is not set.
	ErrExists = errors.New("certs: file exists")
	// ErrFiles reports a missing or invalid file, or an invalid Request.
	ErrFiles = errors.New("certs: unusable file")
)

// Role is the role of a certificate's holder.
type Role string

// The roles. Each but Client includes the permissions of those listed before it. A table in
// internal/rpc contains the role that each call requires.
const (
	Reader   Role = "reader"   // reads data and the cluster's status
	Writer   Role = "writer"   // runs transactions and creates tables
	Observer Role = "observer" // runs observers in workers, and starts and cancels their replays
	Operator Role = "operator" // administers the cluster
	Node     Role = "node"     // a member of the cluster: all permissions
	// Client is the role in certificates of early builds, which did not distinguish clients. It
	// counts as Operator, whose permissions every client had then.
	Client Role = "client"
)

// ClientRoles returns the roles that a client's certificate may have, the weakest first.
func ClientRoles() []Role { return []Role{Reader, Writer, Observer, Operator} }

// AllRoles returns the roles that the public interface accepts.
func AllRoles() []Role { return append(ClientRoles(), Node, Client) }

// Includes reports whether the role has all permissions of the other one. An unknown role includes
// none and is included in none.
func (r Role) Includes(other Role) bool {
	if r == Client {
		r = Operator
	}
	ladder := append(ClientRoles(), Node)
	has, needs := slices.Index(ladder, r), slices.Index(ladder, other)
	return has >= 0 && needs >= 0 && has >= needs
}

const scheme = "percolator"

// identity returns the URI that encodes role and name.
func identity(role Role, name string) *url.URL {
	return &url.URL{Scheme: scheme, Host: string(role), Path: "/" + name}
}

// Identity returns the role and the name in a certificate; the role is empty if the certificate has
// no URI of a role.
func Identity(cert *x509.Certificate) (Role, string) {
	for _, u := range cert.URIs {
		if u.Scheme == scheme {
			return Role(u.Host), strings.TrimPrefix(u.Path, "/")
		}
	}
	return "", ""
}

// checkRole returns ErrRole for a certificate with none of the roles.
func checkRole(cert *x509.Certificate, accept []Role) error {
	role, name := Identity(cert)
	if slices.Contains(accept, role) {
		return nil
	}
	if role == "" {
		return fmt.Errorf("%w: certificate %q has none, want %s", ErrRole,
			cert.Subject.CommonName, list(accept))
	}
	return fmt.Errorf("%w: certificate %q has the role %s, want %s", ErrRole, name, role,
		list(accept))
}

func list(roles []Role) string {
	var names []string
	for _, r := range roles {
		names = append(names, string(r))
	}
	return strings.Join(names, " or ")
}

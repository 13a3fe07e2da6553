package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Info describes one certificate in a folder, or its gossip keys, which have neither hosts nor an
// expiry.
type Info struct {
	File                string    `json:"file"`
	Role                string    `json:"role"` // "authority", "gossip", a Role, or empty
	Name                string    `json:"name"`
	Serial              string    `json:"serial,omitempty"` // for `cert revoke`; of nodes and clients
	Hosts               []string  `json:"hosts,omitempty"`
	NotBefore, NotAfter time.Time `json:"-"`
	// Problem is the reason why the file cannot be used, or empty.
	Problem string `json:"problem,omitempty"`
	// Warning says that the certificate expires soon, or that its role is Client; empty if neither,
	// or if there is a Problem.
	Warning string `json:"warning,omitempty"`
}

// Show describes the certificates in a folder, and its gossip keys, without which a node does not
// start.
func Show(dir string, now time.Time) ([]Info, error) {
	var all []Info
	authorities, err := readCerts(filepath.Join(dir, CACert))
	if err != nil {
		return nil, err
	}
	for _, c := range authorities {
		all = append(all, describe(CACert, c, authorities, now))
	}
	lists, err := readRevoked(filepath.Join(dir, RevokedList), authorities)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{NodeCert, ClientCert} {
		found, err := readCerts(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		i := describe(name, found[0], authorities, now)
		if i.Serial = Serial(found[0]); lists.check(found[0]) != nil {
			i.Problem = "revoked"
		}
		all = append(all, i)
	}
	return append(all, describeKeys(dir)...), nil
}

// describeKeys describes the gossip keys. It reports them as missing only next to a node's
// certificate, because a client's folder has none.
func describeKeys(dir string) []Info {
	i := Info{File: GossipKeys, Role: "gossip"}
	switch keys, err := ReadGossipKeys(dir); {
	case err == nil:
		i.Name = fmt.Sprintf("keys: %d", len(keys))
	case errors.Is(err, fs.ErrPermission):
		i.Name = "not readable by this user" // no Problem: monitoring does not need the keys
	case !errors.Is(err, fs.ErrNotExist):
		i.Problem = fmt.Sprintf("unreadable, or a key is not %d bytes in base64", gossipKeyBytes)
	default:
		if _, err := os.Stat(filepath.Join(dir, NodeCert)); err != nil {
			return nil
		}
		i.Problem = "missing; copy it from the folder in which the authority was created"
	}
	return []Info{i}
}

func describe(file string, c *x509.Certificate, authorities []*x509.Certificate,
	now time.Time) Info {
	roots := x509.NewCertPool()
	for _, a := range authorities {
		roots.AddCert(a)
	}
	role, name := Identity(c)
	if c.IsCA {
		role, name = "authority", c.Subject.CommonName
	}
	i := Info{
		File: file, Role: string(role), Name: name, Hosts: hosts(c), NotBefore: c.NotBefore,
		NotAfter: c.NotAfter,
	}
	_, err := c.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	switch {
	case now.After(c.NotAfter):
		i.Problem = "expired"
	case now.Before(c.NotBefore):
		i.Problem = "not yet valid"
	case err != nil:
		i.Problem = "not issued by the authority in " + CACert + otherAuthority(c, authorities)
	case role == "":
		i.Problem = "no role"
	default:
		if i.Warning = soon(c, now); i.Warning == "" && role == Client {
			i.Warning = "no client role: counts as operator"
		}
	}
	return i
}

// hosts returns the DNS names and IP addresses in a certificate.
func hosts(c *x509.Certificate) []string {
	all := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

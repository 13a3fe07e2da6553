package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Source names the files of one identity. Cert and Key may be empty together: a client
// that shows no certificate.
type Source struct {
	CA, Cert, Key string
	Role          Role // which the certificate must have; empty: any
}

// NodeSource are a node's files in a folder.
func NodeSource(dir string) Source {
	return Source{
		CA: filepath.Join(dir, CACert), Cert: filepath.Join(dir, NodeCert),
		Key: filepath.Join(dir, NodeKey), Role: Node,
	}
}

// ClientSource are a client's files in a folder.
func ClientSource(dir string) Source {
	return Source{
		CA: filepath.Join(dir, CACert), Cert: filepath.Join(dir, ClientCert),
		Key: filepath.Join(dir, ClientKey),
	}
}

// loaded is what the files held.
type loaded struct {
	roots       *x509.CertPool
	authorities []*x509.Certificate // in roots
	revoked     revoked             // by them
	pair        *tls.Certificate    // nil: none
}

// revokedPath is where the authority's list of revoked certificates is, if there is one.
func (s Source) revokedPath() string { return filepath.Join(filepath.Dir(s.CA), RevokedList) }

// load reads and checks the files.
func (s Source) load(now time.Time) (*loaded, error) {
	authorities, err := readCerts(s.CA)
	if err != nil {
		return nil, err
	}
	l := &loaded{roots: x509.NewCertPool(), authorities: authorities}
	for _, c := range authorities {
		l.roots.AddCert(c)
	}
	if l.revoked, err = readRevoked(s.revokedPath(), authorities); err != nil {
		return nil, err
	}
	if s.Cert == "" {
		return l, nil
	}
	if _, err := readCerts(s.Cert); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %s with %s: %w", ErrFiles, s.Cert, s.Key, err)
	}
	if err := checkTime(s.Cert, pair.Leaf, now); err != nil {
		return nil, err
	}
	// Found out here it has a file's name; found out by the other side it is "bad certificate".
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: l.roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, fmt.Errorf("%w: %s is not of the authority in %s%s: %w", ErrFiles, s.Cert, s.CA,
			otherAuthority(pair.Leaf, authorities), err)
	}
	if s.Role != "" {
		if err := checkRole(pair.Leaf, []Role{s.Role}); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Cert, err)
		}
	}
	l.pair = &pair
	return l, nil
}

// otherAuthority returns " (KEY), but of KEY", with the first bytes of the keys' identifiers of
// the authorities that a certificate could be of and of the one that it is of. Their names are
// the same unless somebody chose others. It is empty if the certificate is of one of them, or
// does not say of which it is.
func otherAuthority(c *x509.Certificate, known []*x509.Certificate) string {
	var keys []string
	for _, k := range known {
		if bytes.Equal(k.SubjectKeyId, c.AuthorityKeyId) {
			return ""
		}
		keys = append(keys, shortKey(k.SubjectKeyId))
	}
	if len(c.AuthorityKeyId) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s), but of %s", strings.Join(keys, ", "), shortKey(c.AuthorityKeyId))
}

// shortKey is the beginning of a key's identifier, as other tools write it, such as 1A:2B:3C:4D.
func shortKey(id []byte) string {
	if len(id) == 0 {
		return "a key without identifier"
	}
	return strings.ReplaceAll(fmt.Sprintf("% X", id[:min(4, len(id))]), " ", ":")
}

// checkTime says of which file the time is over.
func checkTime(path string, cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("%w: %s expired on %s; make a new one with `percolator cert`", ErrExpired,
			path, cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("%w: %s is good from %s on only, and here it is %s; is the clock right?",
			ErrExpired, path, cert.NotBefore.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	return nil
}

// readCerts reads the certificates in a file; there is at least one.
func readCerts(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; `percolator cert` makes certificates", ErrFiles, err)
	}
	var found []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFiles, path, err)
		}
		found = append(found, cert)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no certificate in %s", ErrFiles, path)
	}
	return found, nil
}

// loadCA reads the authority and its key.
func loadCA(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certPath, keyPath := filepath.Join(dir, CACert), filepath.Join(dir, CAKey)
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the authority in %s: %w; `percolator cert create-ca` makes one", ErrFiles, dir, err)
	}
	if err := checkTime(certPath, pair.Leaf, now); err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, nil, fmt.Errorf("%w: %s is no authority that `percolator cert create-ca` has made", ErrFiles, certPath)
	}
	return pair.Leaf, key, nil
}

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

// Source names the files of one identity. Cert and Key are both empty for a client without a
// certificate.
type Source struct {
	CA, Cert, Key string
	Role          Role // required role of the certificate; empty: any
}

// NodeSource returns the names of a node's files in a folder.
func NodeSource(dir string) Source {
	return Source{
		CA: filepath.Join(dir, CACert), Cert: filepath.Join(dir, NodeCert),
		Key: filepath.Join(dir, NodeKey), Role: Node,
	}
}

// ClientSource returns the names of a client's files in a folder.
func ClientSource(dir string) Source {
	return Source{
		CA: filepath.Join(dir, CACert), Cert: filepath.Join(dir, ClientCert),
		Key: filepath.Join(dir, ClientKey),
	}
}

// loaded is the contents of the files.
type loaded struct {
	roots       *x509.CertPool
	authorities []*x509.Certificate // in roots
	revoked     revoked             // certificates that authorities have revoked
	pair        *tls.Certificate    // nil: none
}

// revokedPath returns the path of the list of revoked certificates, which may not exist.
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
		return nil, fmt.Errorf("%w: load %s with the key %s: %w", ErrFiles, s.Cert, s.Key, err)
	}
	if err := checkTime(s.Cert, pair.Leaf, now); err != nil {
		return nil, err
	}
	// An error here names the file; the other side would only report "bad certificate".
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: l.roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, fmt.Errorf("%w: %s was not issued by the authority in %s%s: %w", ErrFiles, s.Cert, s.CA,
			otherAuthority(pair.Leaf, authorities), err)
	}
	if s.Role != "" {
		if err := checkRole(pair.Leaf, []Role{s.Role}); err != nil {
			return nil, fmt.Errorf("check the role of %s: %w", s.Cert, err)
		}
	}
	l.pair = &pair
	return l, nil
}

// otherAuthority returns " (KEY), but by KEY": the first bytes of the key identifiers of the known
// authorities and of the certificate's issuer. Key identifiers distinguish authorities, whose names
// are usually the same. It returns "" if a known authority is the issuer, or the certificate does not
// contain its issuer's identifier.
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
	return fmt.Sprintf(" (%s), but by %s", strings.Join(keys, ", "), shortKey(c.AuthorityKeyId))
}

// shortKey returns the first bytes of a key's identifier in the usual notation, such as 1A:2B:3C:4D.
func shortKey(id []byte) string {
	if len(id) == 0 {
		return "a key without an identifier"
	}
	return strings.ReplaceAll(fmt.Sprintf("% X", id[:min(4, len(id))]), " ", ":")
}

// checkTime returns an error that names the file if the certificate is expired or not yet valid.
func checkTime(path string, cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("%w: %s expired on %s; create a new one with `percolator cert`", ErrExpired,
			path, cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("%w: %s is valid from %s on, and this machine's clock is at %s: check the clock",
			ErrExpired, path, cert.NotBefore.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	return nil
}

// readCerts reads the certificates in a file and returns at least one.
func readCerts(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; `percolator cert` creates certificates", ErrFiles, err)
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
			return nil, fmt.Errorf("%w: parse a certificate of %s: %w", ErrFiles, path, err)
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
		return nil, nil, fmt.Errorf("%w: load the authority in %s: %w; `percolator cert create-ca` creates one",
			ErrFiles, dir, err)
	}
	if err := checkTime(certPath, pair.Leaf, now); err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, nil, fmt.Errorf("%w: %s is not an authority created by `percolator cert create-ca`", ErrFiles, certPath)
	}
	return pair.Leaf, key, nil
}

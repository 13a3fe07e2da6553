package certs

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// This file takes certificates back before their time is over: by a list that their
// authority signs (RFC 5280), in a file beside ca.crt. Files reads it with the others. It
// keeps nothing.

// RevokedList is the file of what an authority has revoked, in a folder of certificates.
const RevokedList = "ca.crl"

// maxRevokedBytes bounds the file: some ten thousand certificates.
const maxRevokedBytes = 1 << 20

// ErrRevoked reports that the certificate's authority has taken it back.
var ErrRevoked = errors.New("certs: certificate revoked")

const crlBlock = "X509 CRL"

// revoked are certificates by issuer and serial number. Serial numbers are random, so
// that authorities of one name, of which one replaces the other, have none in common.
type revoked map[string]bool

func serialKey(issuer []byte, serial *big.Int) string {
	return string(issuer) + "\x00" + serial.Text(16)
}

// check refuses a certificate that is one of them.
func (r revoked) check(cert *x509.Certificate) error {
	if len(r) > 0 && r[serialKey(cert.RawIssuer, cert.SerialNumber)] {
		_, name := Identity(cert)
		return fmt.Errorf("%w: that of %q with the serial number %s", ErrRevoked, name, Serial(cert))
	}
	return nil
}

// Serial is the certificate's serial number as people type it.
func Serial(cert *x509.Certificate) string { return cert.SerialNumber.Text(16) }

// readRevoked reads the lists in a file, none if there is no such file. A list of an
// authority that is not among these is passed over: neither are its certificates taken.
func readRevoked(path string, authorities []*x509.Certificate) (revoked, error) {
	lists, err := readLists(path)
	if err != nil || len(lists) == 0 {
		return nil, err
	}
	out := revoked{}
	for _, l := range lists {
		signed, known := false, false
		for _, ca := range authorities {
			signed = signed || l.CheckSignatureFrom(ca) == nil
			known = known || string(l.AuthorityKeyId) == string(ca.SubjectKeyId)
		}
		if known && !signed {
			return nil, fmt.Errorf("%w: %s: a list is not signed by its authority", ErrFiles, path)
		}
		for _, e := range l.RevokedCertificateEntries {
			if signed {
				out[serialKey(l.RawIssuer, e.SerialNumber)] = true
			}
		}
	}
	return out, nil
}

// readLists reads the lists in a file; none if there is no file.
func readLists(path string) (lists []*x509.RevocationList, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	case info.Size() > maxRevokedBytes:
		return nil, fmt.Errorf("%w: %s is larger than %d bytes: make a new authority", ErrFiles, path,
			maxRevokedBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		l, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFiles, path, err)
		}
		lists = append(lists, l)
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("%w: no list of revoked certificates in %s", ErrFiles, path)
	}
	return lists, nil
}

// Revoke adds certificates to the list of the authority in a folder, each given by its file or
// its serial number, and returns how many are revoked now. Lists of other authorities in the file
// stay. It may be repeated.
func Revoke(dir string, which []string, now time.Time) (count int, err error) {
	ca, key, err := loadCA(dir, now)
	if err != nil {
		return 0, err
	}
	path := filepath.Join(dir, RevokedList)
	lists, err := readLists(path)
	if err != nil {
		return 0, err
	}
	next := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now, NextUpdate: ca.NotAfter}
	var text []byte
	for _, l := range lists {
		if l.CheckSignatureFrom(ca) != nil {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: crlBlock, Bytes: l.Raw})...)
			continue
		}
		next.RevokedCertificateEntries = l.RevokedCertificateEntries
		next.Number = new(big.Int).Add(l.Number, big.NewInt(1))
	}
	for _, one := range which {
		serial, err := serialOf(one, ca)
		if err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(next.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool {
			return e.SerialNumber.Cmp(serial) == 0
		}) {
			next.RevokedCertificateEntries = append(next.RevokedCertificateEntries,
				x509.RevocationListEntry{SerialNumber: serial, RevocationTime: now})
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, next, ca, key)
	if err != nil {
		return 0, fmt.Errorf("certs: %w", err)
	}
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: crlBlock, Bytes: der})...)
	if len(text) > maxRevokedBytes {
		return 0, fmt.Errorf("%w: %s would be larger than %d bytes: make a new authority", ErrFiles, path,
			maxRevokedBytes)
	}
	return len(next.RevokedCertificateEntries), writeFile(path, text, certMode)
}

// serialOf returns the serial number of a certificate of the authority, by its file, or as it
// was given.
func serialOf(which string, ca *x509.Certificate) (*big.Int, error) {
	if _, err := os.Stat(which); err == nil {
		found, err := readCerts(which)
		if err != nil {
			return nil, err
		}
		if err := found[0].CheckSignatureFrom(ca); err != nil || found[0].IsCA {
			return nil, fmt.Errorf("%w: %s was not made by this authority for a node or client", ErrFiles, which)
		}
		return found[0].SerialNumber, nil
	}
	digits, err := hex.DecodeString(strings.Repeat("0", len(which)%2) + which)
	if err != nil || len(digits) == 0 || len(digits) > 20 {
		return nil, fmt.Errorf("%w: %q is neither a certificate's file nor a serial number as `percolator cert "+
			"show` tells it", ErrFiles, which)
	}
	return new(big.Int).SetBytes(digits), nil
}

// Revoked reports whether the certificate, which has been taken once, has been revoked
// since.
func (f *Files) Revoked(cert *x509.Certificate) bool { return f.now().revoked.check(cert) != nil }

// RevokedList returns how many certificates are revoked, and a short text that is the same
// wherever the same ones are.
func (f *Files) RevokedList() (count int, digest string) {
	list := f.now().revoked
	sum := sha256.New()
	for _, one := range slices.Sorted(maps.Keys(list)) {
		_, _ = fmt.Fprintf(sum, "%q\n", one) // it never fails
	}
	return len(list), hex.EncodeToString(sum.Sum(nil)[:8])
}

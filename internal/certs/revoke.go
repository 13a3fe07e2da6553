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

// Revocation of certificates by a list that their authority signs (RFC 5280), in a file next to
// ca.crt. Files loads it with the other files. Stateless.

// RevokedList is the name of the file with the revoked certificates.
const RevokedList = "ca.crl"

// maxRevokedBytes limits the file, to about twenty thousand certificates.
const maxRevokedBytes = 1 << 20

// ErrRevoked reports that the certificate's authority has revoked it.
var ErrRevoked = errors.New("certs: certificate revoked")

const crlBlock = "X509 CRL"

// revoked is a set of certificates by issuer and serial number. Serial numbers are random, so that
// two authorities with the same name, of which one replaces the other, share none.
type revoked map[string]bool

func serialKey(issuer []byte, serial *big.Int) string {
	return string(issuer) + "\x00" + serial.Text(16)
}

// check returns ErrRevoked for a revoked certificate.
func (r revoked) check(cert *x509.Certificate) error {
	if len(r) > 0 && r[serialKey(cert.RawIssuer, cert.SerialNumber)] {
		_, name := Identity(cert)
		return fmt.Errorf("%w: %q with serial number %s", ErrRevoked, name, Serial(cert))
	}
	return nil
}

// Serial returns the certificate's serial number in hexadecimal.
func Serial(cert *x509.Certificate) string { return cert.SerialNumber.Text(16) }

// readRevoked reads the lists in a file; none if the file does not exist. It skips lists of other
// authorities, whose certificates are not accepted either.
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
			return nil, fmt.Errorf("%w: a revocation list in %s is not signed by its authority", ErrFiles, path)
		}
		for _, e := range l.RevokedCertificateEntries {
			if signed {
				out[serialKey(l.RawIssuer, e.SerialNumber)] = true
			}
		}
	}
	return out, nil
}

// readLists reads the lists in a file; none if the file does not exist.
func readLists(path string) (lists []*x509.RevocationList, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: check the size of the revocation list: %w", ErrFiles, err)
	case info.Size() > maxRevokedBytes:
		return nil, fmt.Errorf("%w: %s is larger than %d bytes: create a new authority", ErrFiles, path,
			maxRevokedBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: read the revocation list: %w", ErrFiles, err)
	}
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		l, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: parse a revocation list of %s: %w", ErrFiles, path, err)
		}
		lists = append(lists, l)
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("%w: no list of revoked certificates in %s: copy the file from another node",
			ErrFiles, path)
	}
	return lists, nil
}

// Revoke adds certificates to the revocation list of the authority in a folder, each given by its
// file or its serial number, and returns the number of certificates in that list, old and new. It
// keeps the lists of other authorities in the file, and is idempotent.
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
		return 0, fmt.Errorf("certs: sign the revocation list: %w", err)
	}
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: crlBlock, Bytes: der})...)
	if len(text) > maxRevokedBytes {
		return 0, fmt.Errorf("%w: %s would be larger than %d bytes: create a new authority", ErrFiles, path,
			maxRevokedBytes)
	}
	return len(next.RevokedCertificateEntries), writeFile(path, text, certMode)
}

// serialOf returns the serial number in which, which is a file with a certificate of the authority or
// a serial number.
func serialOf(which string, ca *x509.Certificate) (*big.Int, error) {
	if _, err := os.Stat(which); err == nil {
		found, err := readCerts(which)
		if err != nil {
			return nil, err
		}
		if err := found[0].CheckSignatureFrom(ca); err != nil || found[0].IsCA {
			return nil, fmt.Errorf("%w: %s is not a node's or client's certificate issued by this authority", ErrFiles, which)
		}
		return found[0].SerialNumber, nil
	}
	digits, err := hex.DecodeString(strings.Repeat("0", len(which)%2) + which)
	if err != nil || len(digits) == 0 || len(digits) > 20 {
		return nil, fmt.Errorf("%w: %q is neither a certificate's file nor a serial number as printed by `percolator cert "+
			"show`", ErrFiles, which)
	}
	return new(big.Int).SetBytes(digits), nil
}

// Revoked reports whether a certificate that was accepted before has been revoked since.
func (f *Files) Revoked(cert *x509.Certificate) bool { return f.now().revoked.check(cert) != nil }

// RevokedList returns the number of revoked certificates and a short digest of them, to compare
// nodes.
func (f *Files) RevokedList() (count int, digest string) {
	list := f.now().revoked
	sum := sha256.New()
	for _, one := range slices.Sorted(maps.Keys(list)) {
		_, _ = fmt.Fprintf(sum, "%q\n", one) // never fails
	}
	return len(list), hex.EncodeToString(sum.Sum(nil)[:8])
}

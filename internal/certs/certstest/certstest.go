// Package certstest creates folders of certificates for tests.
package certstest

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

// Folder creates a folder with an authority, its gossip key, and certificates for a node at the host
// and a client. The client has the role operator.
func Folder(tb testing.TB, host string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	for _, create := range []func(certs.Request) (certs.Created, error){certs.CreateCA,
		certs.CreateNode, certs.CreateClient} {
		if _, err := create(certs.Request{Dir: dir, Name: "x", Hosts: []string{host},
			Role: certs.Operator}); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// OldClient creates a folder with a client's certificate without a client role, as early builds
// issued them. The authority in the folder ca signs it.
func OldClient(tb testing.TB, ca string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	pair, err := tls.LoadX509KeyPair(filepath.Join(ca, certs.CACert), filepath.Join(ca, certs.CAKey))
	if err != nil {
		tb.Fatal(err)
	}
	// The certificate has the authority's own key: only its signed contents matter.
	public := pair.Leaf.PublicKey
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "ann"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "percolator", Host: "client", Path: "/ann"}},
	}, pair.Leaf, public, pair.PrivateKey)
	if err != nil {
		tb.Fatal(err)
	}
	for from, to := range map[string]string{certs.CACert: certs.CACert, certs.CAKey: certs.ClientKey} {
		data, err := os.ReadFile(filepath.Join(ca, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, certs.ClientCert), cert, 0o600); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Package certstest makes folders of certificates for tests.
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

// Folder makes a folder with an authority, its gossip key, and the certificates of a node
// and a client for the host. The client is an operator.
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

// OldClient makes a folder with a client's certificate as they were before clients had
// roles of their own. The authority is that of the folder ca.
func OldClient(tb testing.TB, ca string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	pair, err := tls.LoadX509KeyPair(filepath.Join(ca, certs.CACert), filepath.Join(ca, certs.CAKey))
	if err != nil {
		tb.Fatal(err)
	}
	// Its key is the authority's: what counts is what is signed.
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

// Package certstest makes folders of certificates for tests.
package certstest

import (
	"testing"

	"github.com/percolator-go/percolator/internal/certs"
)

// Folder makes a folder with an authority, its gossip key, and the certificates of a node
// and a client for the host.
func Folder(tb testing.TB, host string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	for _, create := range []func(certs.Request) (certs.Created, error){certs.CreateCA,
		certs.CreateNode, certs.CreateClient} {
		if _, err := create(certs.Request{Dir: dir, Name: "x", Hosts: []string{host}}); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

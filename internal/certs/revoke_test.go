package certs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

// TestRevoked: a certificate revoked by the authority is refused from the next handshake on, by
// servers and by clients of nodes, and no other is; a list that was changed or is of another
// authority revokes nothing, and the earlier one stays in force.
func TestRevoked(t *testing.T) {
	dir, ann, node := folder(t), t.TempDir(), t.TempDir()
	must(t, certs.CreateClient, certs.Request{Dir: ann, CA: dir, Name: "ann"})
	must(t, certs.CreateNode, certs.Request{Dir: node, CA: dir, Name: "n2", Hosts: []string{"127.0.0.1"}})
	ours, stolen := open(t, certs.NodeSource(dir)), open(t, certs.NodeSource(node))
	bobs, anns := open(t, certs.ClientSource(dir)), open(t, certs.ClientSource(ann))
	serving := ours.Server(certs.AllRoles()...)
	tried := func(when string, anns1, stolen1 bool) {
		t.Helper()
		certs.Forget(ours)
		if a, b := handshake(t, serving, bobs.Client()); a != nil || b != nil {
			t.Errorf("%s, bob: %v, %v", when, a, b)
		}
		if a, b := handshake(t, serving, anns.Client()); (a == nil && b == nil) != anns1 {
			t.Errorf("REVOKED-LET-IN: %s, ann: %v, %v", when, a, b)
		}
		if a, b := handshake(t, stolen.Server(certs.Node), ours.Peer()); (a == nil && b == nil) != stolen1 {
			t.Errorf("REVOKED-LET-IN: %s, to the node: %v, %v", when, a, b)
		}
		if a, b := handshake(t, serving, stolen.Peer()); (a == nil && b == nil) != stolen1 {
			t.Errorf("REVOKED-LET-IN: %s, from the node: %v, %v", when, a, b)
		}
	}
	revoke := func(want int, which ...string) {
		t.Helper()
		if n, err := certs.Revoke(dir, which, time.Now()); err != nil || n != want {
			t.Fatal(n, err)
		}
	}
	tried("nothing is revoked", true, true)
	for range 2 { // repeating changes nothing
		revoke(1, filepath.Join(ann, certs.ClientCert))
	}
	tried("ann is", false, true)
	infos, err := certs.Show(node, time.Now())
	if err != nil || infos[1].Serial == "" {
		t.Fatal(infos, err)
	}
	revoke(2, infos[1].Serial) // the file may be lost
	tried("the node is too", false, false)
	if infos, err := certs.Show(dir, time.Now()); err != nil || infos[1].Problem != "" {
		t.Error(infos, err)
	}
	must(t, certs.CreateClient, certs.Request{Dir: ann, CA: dir, Name: "ann", Force: true})
	anns = open(t, certs.ClientSource(ann)) // with the list
	tried("ann has a new one", true, false)

	list := read(t, dir, certs.RevokedList)
	write(t, dir, certs.RevokedList, list[:len(list)/2])
	tried("the list is damaged", true, false)
	if _, err := certs.Open(certs.NodeSource(dir), nil); err == nil {
		t.Error("a node starts with a damaged list")
	}
	other := folder(t)
	if _, err := certs.Revoke(other, []string{infos[1].Serial}, time.Now()); err != nil {
		t.Fatal(err)
	}
	write(t, dir, certs.RevokedList, read(t, other, certs.RevokedList))
	tried("the list is another authority's", true, true)
	revoke(1, infos[1].Serial) // in addition to the other's
	tried("the node is again", true, false)
	write(t, dir, certs.RevokedList, strings.Repeat(list, 1<<20/len(list)+1))
	tried("the list is too long", true, false)
}

// TestRevokeRefuses: only certificates of the authority and valid serial numbers are accepted.
func TestRevokeRefuses(t *testing.T) {
	dir, other := folder(t), folder(t)
	for _, bad := range []string{
		filepath.Join(other, certs.ClientCert), filepath.Join(dir, certs.CACert), "ann", "", strings.Repeat("f", 41),
	} {
		if _, err := certs.Revoke(dir, []string{bad}, time.Now()); err == nil {
			t.Errorf("%q is revoked", bad)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, certs.RevokedList)); err == nil {
		t.Error("a list was written")
	}
	if _, err := certs.Revoke(t.TempDir(), []string{"ff"}, time.Now()); err == nil {
		t.Error("without an authority")
	}
}

package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

// folder creates an authority, a node's and a client's certificate in one folder.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, certs.CreateCA, certs.Request{Dir: dir})
	must(t, certs.CreateNode, certs.Request{
		Dir: dir, Name: "n1", Hosts: []string{"localhost", "127.0.0.1"},
	})
	must(t, certs.CreateClient, certs.Request{Dir: dir, Name: "ann"})
	return dir
}

func must(t *testing.T, create func(certs.Request) (certs.Created, error), r certs.Request) {
	t.Helper()
	if _, err := create(r); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, s certs.Source) *certs.Files {
	t.Helper()
	f, err := certs.Open(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// handshake performs a handshake over a pipe and returns each side's result. The client's is taken
// after it has read a byte: in TLS 1.3 it learns of its refusal only then.
func handshake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := lis.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, server)
		if serverErr = conn.Handshake(); serverErr == nil {
			_, serverErr = conn.Write([]byte{1})
		}
	}()
	raw, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	client = client.Clone()
	if client.ServerName == "" {
		client.ServerName = "127.0.0.1"
	}
	conn := tls.Client(raw, client)
	if clientErr = conn.Handshake(); clientErr == nil {
		_, clientErr = conn.Read(make([]byte, 1))
	}
	if err := raw.Close(); err != nil {
		t.Error(err)
	}
	<-done
	return serverErr, clientErr
}

// Accepted connections, by authority and by role.
func TestRoles(t *testing.T) {
	ours, theirs := folder(t), folder(t)
	node, client := open(t, certs.NodeSource(ours)), open(t, certs.ClientSource(ours))
	foreign := open(t, certs.NodeSource(theirs))
	anonymous := open(t, certs.Source{CA: filepath.Join(ours, certs.CACert)})
	forNodes, forAll := node.Server(certs.Node), node.Server(certs.AllRoles()...)
	asServer := client.Server(certs.Node) // a client that poses as a node
	for _, tc := range []struct {
		name           string
		server, client *tls.Config
		ok             bool
	}{
		{"node to node", forNodes, node.Peer(), true},
		{"client to the public interface", forAll, client.Client(), true},
		{"node to the public interface", forAll, node.Client(), true},
		{"client to the remoting", forNodes, client.Peer(), false},
		{"another authority's node", forNodes, foreign.Peer(), false},
		{"no certificate", forAll, anonymous.Client(), false},
		{"no certificate to the remoting", forNodes, anonymous.Peer(), false},
		{"a client that plays a node", asServer, node.Peer(), false},
		{"a client that plays a node to clients", asServer, client.Client(), false},
		{"another authority's server", foreign.Server(certs.AllRoles()...), client.Client(),
			false},
		{"another authority's server, of a node", foreign.Server(certs.Node), node.Peer(), false},
		{"a server of another name", forAll, named(client.Client(), "elsewhere"), false},
		{"a node of another name", forNodes, named(node.Peer(), "elsewhere"), true},
	} {
		serverErr, clientErr := handshake(t, tc.server, tc.client)
		if ok := serverErr == nil && clientErr == nil; ok != tc.ok {
			t.Errorf("ROLES: %s: server %v, client %v", tc.name, serverErr, clientErr)
		}
	}
	serverErr, _ := handshake(t, forNodes, client.Peer())
	if !errors.Is(serverErr, certs.ErrRole) ||
		!strings.Contains(serverErr.Error(), `"ann" has the role writer, want node`) {
		t.Errorf("the refusal does not state it: %v", serverErr)
	}
}

func named(cfg *tls.Config, name string) *tls.Config {
	cfg.ServerName = name
	return cfg
}

// Existing files are overwritten only on request, and only their owner can read keys.
func TestFiles(t *testing.T) {
	dir := folder(t)
	before := read(t, dir, certs.CAKey) + read(t, dir, certs.NodeKey)
	for name, create := range map[string]func(certs.Request) (certs.Created, error){
		"ca": certs.CreateCA, "node": certs.CreateNode, "client": certs.CreateClient,
	} {
		if _, err := create(certs.Request{Dir: dir, Name: "x",
			Hosts: []string{"h"}}); !errors.Is(err, certs.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if read(t, dir, certs.CAKey)+read(t, dir, certs.NodeKey) != before {
		t.Error("a key was overwritten")
	}
	must(t, certs.CreateNode, certs.Request{
		Dir: dir, Name: "n1", Hosts: []string{"h"}, Force: true,
	})
	if read(t, dir, certs.CAKey)+read(t, dir, certs.NodeKey) == before {
		t.Error("the key was not overwritten")
	}
	for _, name := range []string{certs.CAKey, certs.NodeKey, certs.ClientKey, certs.GossipKeys} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 7 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A folder created from another one has everything that a node needs, without the authority's key.
func TestFolderOfItsOwn(t *testing.T) {
	ca, out := folder(t), filepath.Join(t.TempDir(), "n2")
	must(t, certs.CreateNode, certs.Request{Dir: out, CA: ca, Name: "n2", Hosts: []string{"::1"}})
	open(t, certs.NodeSource(out))
	if read(t, out, certs.GossipKeys) != read(t, ca, certs.GossipKeys) {
		t.Error("gossip keys differ")
	}
	if _, err := os.Stat(filepath.Join(out, certs.CAKey)); err == nil {
		t.Error("the authority's key went along")
	}
	// ca.crt already exists, unchanged
	must(t, certs.CreateClient, certs.Request{Dir: out, CA: ca, Name: "ann"})
	info, err := certs.Show(out, time.Now())
	if err != nil || len(info) != 4 {
		t.Fatalf("%+v, %v", info, err)
	}
	for i, want := range []struct{ role, name string }{{"authority", "percolator"}, {"node", "n2"},
		{"writer", "ann"}, {"gossip", "keys: 1"}} {
		if info[i].Role != want.role || info[i].Name != want.name || info[i].Problem != "" {
			t.Errorf("%+v", info[i])
		}
	}
}

// Unusable files are refused with the file's name and a remedy.
func TestUnusable(t *testing.T) {
	dir, other := folder(t), folder(t)
	long := time.Now().Add(-48 * time.Hour)
	must(t, certs.CreateNode, certs.Request{
		Dir: dir, CA: dir, Name: "n1", Hosts: []string{"h"}, Lifetime: 24 * time.Hour,
		Now: time.Now(), Force: true,
	})
	expired := t.TempDir()
	must(t, certs.CreateCA, certs.Request{Dir: expired, Now: long})
	must(t, certs.CreateNode, certs.Request{
		Dir: expired, Name: "n1", Hosts: []string{"h"}, Lifetime: 24 * time.Hour, Now: long,
	})
	early := t.TempDir()
	must(t, certs.CreateCA, certs.Request{Dir: early})
	must(t, certs.CreateNode, certs.Request{
		Dir: early, Name: "n1", Hosts: []string{"h"}, Now: time.Now().Add(time.Hour),
	})
	client := certs.ClientSource(dir)
	client.Role = certs.Node
	mixed := certs.NodeSource(dir)
	mixed.CA = filepath.Join(other, certs.CACert)
	torn := certs.NodeSource(dir)
	torn.Key = filepath.Join(other, certs.NodeKey)
	for _, tc := range []struct {
		name   string
		source certs.Source
		kind   error
		says   string
	}{
		{"missing", certs.NodeSource(t.TempDir()), certs.ErrFiles, "percolator cert"},
		{"expired", certs.NodeSource(expired), certs.ErrExpired, "node.crt expired on 20"},
		{"not yet", certs.NodeSource(early), certs.ErrExpired, "check the clock"},
		{"another authority", mixed, certs.ErrFiles, "not issued by the authority"},
		{"another key", torn, certs.ErrFiles, "node.key"},
		{"another role", client, certs.ErrRole, "client.crt"},
	} {
		if _, err := certs.Open(tc.source, nil); !errors.Is(err, tc.kind) ||
			!strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if info, err := certs.Show(expired, time.Now()); err != nil || info[1].Problem != "expired" {
		t.Errorf("%+v, %v", info, err)
	}
}

// authorityKey returns the first bytes of the identifier of an authority's key.
func authorityKey(t *testing.T, dir string) string {
	t.Helper()
	block, _ := pem.Decode([]byte(read(t, dir, certs.CACert)))
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	id := c.SubjectKeyId
	return fmt.Sprintf("%02X:%02X:%02X:%02X", id[0], id[1], id[2], id[3])
}

// TestTwoAuthoritiesOfOneName: for a folder whose certificates are of another authority than its
// ca.crt, the error distinguishes both, although they have the same name.
func TestTwoAuthoritiesOfOneName(t *testing.T) {
	dir, other := folder(t), folder(t)
	its, wanted := authorityKey(t, dir), authorityKey(t, other)
	foreign := []byte(read(t, other, certs.CACert))
	if err := os.WriteFile(filepath.Join(dir, certs.CACert), foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "not issued by the authority in ca.crt (" + wanted + "), but by " + its
	info, err := certs.Show(dir, time.Now())
	if err != nil || info[1].Problem != want || info[2].Problem != want {
		t.Errorf("%+v, %v, want %q", info, err, want)
	}
	_, err = certs.Open(certs.NodeSource(dir), nil)
	which := "ca.crt (" + wanted + "), but by " + its
	if !errors.Is(err, certs.ErrFiles) || !strings.Contains(err.Error(), which) {
		t.Errorf("opened: %v", err)
	}
}

// Names are checked, and a missing authority is not created.
func TestCreateRefuses(t *testing.T) {
	dir := folder(t)
	for _, r := range []certs.Request{
		{Dir: t.TempDir(), Name: "n", Hosts: []string{"h"}},
		{Dir: dir, Name: "", Hosts: []string{"h"}, Force: true},
		{Dir: dir, Name: "a/b", Hosts: []string{"h"}, Force: true},
		{Dir: dir, Name: "n", Force: true},
		{Dir: dir, Name: "n", Hosts: []string{"a b"}, Force: true},
		{Dir: dir, Name: "n", Hosts: []string{"good", "h:7800"}, Force: true},
		{Dir: dir, Name: "n", Hosts: []string{""}, Force: true},
		{Dir: dir, Name: "n", Hosts: []string{"a..b"}, Force: true},
	} {
		if _, err := certs.CreateNode(r); !errors.Is(err, certs.ErrFiles) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// Certificates and authority are replaced while both sides run; a half-written pair is not used.
func TestReload(t *testing.T) {
	dir := folder(t)
	server, client := open(t, certs.NodeSource(dir)), open(t, certs.NodeSource(dir))
	serving, calling := server.Server(certs.Node), client.Peer()
	serial := func() string {
		t.Helper()
		var got string
		cfg := calling.Clone()
		verify := cfg.VerifyConnection
		cfg.VerifyConnection = func(s tls.ConnectionState) error {
			got = s.PeerCertificates[0].SerialNumber.String()
			return verify(s)
		}
		if a, b := handshake(t, serving, cfg); a != nil || b != nil {
			t.Fatalf("server %v, client %v", a, b)
		}
		return got
	}
	first := serial()
	old := read(t, dir, certs.NodeKey)
	must(t, certs.CreateNode, certs.Request{
		Dir: dir, Name: "n1", Hosts: []string{"127.0.0.1"}, Force: true,
	})
	renewed := read(t, dir, certs.NodeKey)
	write(t, dir, certs.NodeKey, old) // as if the key had not been written yet
	certs.Forget(server)
	if got := serial(); got != first {
		t.Error("a half-written pair was used")
	}
	write(t, dir, certs.NodeKey, renewed)
	certs.Forget(server)
	second := serial()
	if second == first {
		t.Error("the new certificate was not used")
	}
	// A new authority: first both are trusted, then every node gets a certificate of the new one.
	next := folder(t)
	write(t, dir, certs.CACert, read(t, dir, certs.CACert)+read(t, next, certs.CACert))
	certs.Forget(server)
	certs.Forget(client)
	if got := serial(); got != second {
		t.Error("another certificate")
	}
	write(t, dir, certs.NodeKey, read(t, next, certs.NodeKey))
	write(t, dir, certs.NodeCert, read(t, next, certs.NodeCert))
	certs.Forget(server)
	if got := serial(); got == second {
		t.Error("the new authority's certificate was not used")
	}
}

// In the three steps of a rotation all pairs of neighbouring states can connect.
func TestGossipKeys(t *testing.T) {
	dir := folder(t)
	keys := func() [][]byte {
		t.Helper()
		keys, err := certs.ReadGossipKeys(dir)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	old := string(keys()[0])
	if _, err := certs.RotateGossipKey(dir, certs.UseKey, false); !errors.Is(err, certs.ErrFiles) {
		t.Error(err)
	}
	rotate := func(step certs.Step, force bool, want int) {
		t.Helper()
		if n, err := certs.RotateGossipKey(dir, step, force); n != want ||
			(err == nil) != (want > 0) {
			t.Error(step, n, err)
		}
	}
	rotate(certs.DropOld, false, 1) // nothing left to drop, as after the last step
	rotate(certs.AddKey, false, 2)
	_, err := certs.RotateGossipKey(dir, certs.DropOld, false)
	if !errors.Is(err, certs.ErrNotUsed) {
		t.Error(err)
	}
	rotate(certs.DropOld, true, 1)
	if got := keys(); string(got[0]) != old {
		t.Error("the key that encrypts was dropped")
	}
	rotate(certs.AddKey, false, 2)
	if got := keys(); string(got[0]) != old {
		t.Error("the new key encrypts before all accept it")
	}
	if n, err := certs.RotateGossipKey(dir, certs.UseKey, false); n != 2 || err != nil {
		t.Error(n, err)
	}
	if got := keys(); string(got[0]) == old || string(got[1]) != old {
		t.Error("the order is wrong")
	}
	if n, err := certs.RotateGossipKey(dir, certs.DropOld, false); n != 1 || err != nil {
		t.Error(n, err)
	}
	if got := keys(); len(got) != 1 || string(got[0]) == old {
		t.Error("the old key is still there")
	}
	for _, bad := range []string{"", "short\n", "!\n", base64.StdEncoding.EncodeToString(make([]byte, 16)) + "\n"} {
		write(t, dir, certs.GossipKeys, bad)
		if _, err := certs.ReadGossipKeys(dir); !errors.Is(err, certs.ErrFiles) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A certificate without a URI of ours has no role.
func TestIdentity(t *testing.T) {
	if role, name := certs.Identity(&x509.Certificate{}); role != "" || name != "" {
		t.Error(role, name)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

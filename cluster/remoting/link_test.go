package remoting_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

// folder makes a cluster's certificates.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, create := range []func(certs.Request) (certs.Created, error){certs.CreateCA, certs.CreateNode, certs.CreateClient} {
		if _, err := create(certs.Request{Dir: dir, Name: "x", Hosts: []string{"elsewhere"}}); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pair starts two nodes that know each other.
func pair(t *testing.T, dir string) (a, b *child) {
	t.Helper()
	a, b = start(t, childConfig{Node: 1, Incarnation: 1, Certs: dir}), start(t, childConfig{Node: 2, Incarnation: 1, Certs: dir})
	a.knows(2, b.addr)
	b.knows(1, a.addr)
	return a, b
}

// Two nodes ask each other, in plain text and with certificates, messages of every size that is allowed.
func TestTwoNodes(t *testing.T) {
	for name, dir := range map[string]string{"plain": "", "certificates": folder(t)} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, dir)
			a.asks(2)
			b.asks(1)
			if got := a.tell("ask 2 20000 256"); !strings.HasPrefix(got, "ok") {
				t.Error(got)
			} else {
				t.Logf("20,000 questions of 256 callers: %s, in %d batches", got, a.stats().Sent)
			}
			for _, size := range []int{4 << 20, 8 << 20, 20 << 20} {
				if got := a.tell("large 2 %d", size); !strings.HasPrefix(got, "ok") {
					t.Errorf("%d bytes: %s", size, got)
				} else {
					t.Logf("%d bytes: %s", size, got)
				}
			}
			if got := a.tell("ask 3 1 1"); !strings.Contains(got, "request not sent") {
				t.Errorf("an unknown node: %s", got)
			}
			if st := b.stats(); st.Connected != 1 || st.Refused+st.Handshakes+st.Panics+st.Lost != 0 {
				t.Errorf("%+v", st)
			}
			for _, c := range []*child{a, b} {
				took, err := time.ParseDuration(c.tell("quit"))
				if err != nil || took > 2*time.Second {
					t.Errorf("closing took %v, %v", took, err)
				}
			}
		})
	}
}

// A node that is killed and comes back, elsewhere or at its address, is asked again within a second; what was asked in
// between fails at once or soon, and not after the two seconds that the library sleeps.
func TestReconnect(t *testing.T) {
	dir := folder(t)
	a, b := pair(t, dir)
	a.asks(2)
	for i, where := range []string{"127.0.0.1:0", "its address", "its address"} {
		b.kill()
		begin := time.Now()
		if got := a.tell("ask 2 1 1"); !strings.HasPrefix(got, "error") {
			t.Errorf("a dead node answered: %s", got)
		}
		if took := time.Since(begin); took > 1500*time.Millisecond {
			t.Errorf("it took %v to tell that the node is dead", took)
		}
		if where == "its address" {
			where = b.addr
		}
		b = start(t, childConfig{Node: 2, Incarnation: uint64(i + 2), Certs: dir, Listen: where})
		b.knows(1, a.addr)
		a.knows(2, b.addr)
		begin = time.Now()
		for !strings.HasPrefix(a.tell("ask 2 1 1"), "ok") {
			if time.Since(begin) > 10*time.Second {
				t.Fatal("the node is not found again")
			}
		}
		took := time.Since(begin)
		t.Logf("asked again %v after it was back", took)
		if took > time.Second {
			t.Errorf("found again only after %v", took)
		}
	}
}

// What waits for a node that has been stopped fails when gossip declares it dead, and it is asked again when it goes on.
func TestDownOfASilentNode(t *testing.T) {
	a, b := pair(t, folder(t))
	a.asks(2)
	b.asks(1)
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if got := a.tell("down 2 1"); got != "ok" {
		t.Error(got)
	}
	for time.Since(begin) < 1500*time.Millisecond { // attempts to connect come and go
		asked := time.Now()
		if got := a.tell("ask 2 1 1"); !strings.Contains(got, "request not sent") {
			t.Fatalf("a silent node: %s", got)
		}
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("it took %v to fail", took)
		}
	}
	if st := a.stats(); st.Failed == 0 {
		t.Errorf("no attempt was made: %+v", st)
	}
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for begin = time.Now(); !strings.HasPrefix(a.tell("ask 2 1 1"), "ok"); {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the node is not found again")
		}
	}
	t.Logf("asked again %v after it went on", time.Since(begin))
}

// Certificates are renewed while nodes talk, and the next connection uses them.
func TestNewCertificates(t *testing.T) {
	dir := folder(t)
	a, b := pair(t, dir)
	a.asks(2)
	if _, err := certs.CreateNode(certs.Request{Dir: dir, Name: "y", Hosts: []string{"h"}, Force: true}); err != nil {
		t.Fatal(err)
	}
	a.asks(2)
	b.kill()
	b = start(t, childConfig{Node: 2, Incarnation: 2, Certs: dir, Listen: b.addr})
	b.knows(1, a.addr)
	for begin := time.Now(); !strings.HasPrefix(a.tell("ask 2 1 1"), "ok"); {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the node is not found again")
		}
	}
}

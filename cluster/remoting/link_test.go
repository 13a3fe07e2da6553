package remoting_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/ports"
)

// freeAddr returns an address at which a node can listen in several lives.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// pair starts two nodes that know each other. The second may return at its address.
func pair(t *testing.T, dir string) (a, b *child) {
	t.Helper()
	a, b = start(t, childConfig{Node: 1, Incarnation: 1, Certs: dir}),
		start(t, childConfig{Node: 2, Incarnation: 1, Certs: dir, Listen: freeAddr(t)})
	a.knows(2, b.addr)
	b.knows(1, a.addr)
	return a, b
}

// Two nodes send each other requests of every allowed size, in plain text and with certificates.
func TestTwoNodes(t *testing.T) {
	for name, dir := range map[string]string{"plain": "",
		"certificates": certstest.Folder(t, "elsewhere")} {
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
			if st := b.stats(); st.Connected != 1 ||
				st.Refused+st.Handshakes+st.Panics+st.Lost != 0 {
				t.Errorf("%+v", st)
			}
			for _, c := range []*child{a, b} {
				took, err := time.ParseDuration(c.tell("quit"))
				if err != nil || took > 4*time.Second { // gRPC alone would wait 5 s for a silent node
					t.Errorf("closing took %v, %v", took, err)
				}
			}
		})
	}
}

// A node that is killed and returns, at its address or another, receives requests again within a
// second; requests in between fail at once or soon. On a busy machine, one of five times must show
// it.
func TestReconnect(t *testing.T) {
	dir := certstest.Folder(t, "elsewhere")
	a, b := pair(t, dir)
	a.asks(2)
	life := uint64(1)
	for _, moves := range []bool{true, false, false} {
		for try := 1; ; try++ {
			b.kill()
			begin := time.Now()
			if got := a.tell("ask 2 1 1"); !strings.HasPrefix(got, "error") {
				t.Errorf("a dead node answered: %s", got)
			}
			told := time.Since(begin)
			where := b.addr
			if moves {
				where = freeAddr(t)
			}
			life++
			b = start(t, childConfig{Node: 2, Incarnation: life, Certs: dir, Listen: where})
			b.knows(1, a.addr)
			a.knows(2, b.addr)
			begin = time.Now()
			a.asksAgain(2)
			found := time.Since(begin)
			t.Logf("moves %v: known to be dead after %v, asked again %v after it was back", moves,
				told, found)
			if told <= 1500*time.Millisecond && found <= time.Second {
				break
			}
			if try == 5 {
				t.Fatal("each time it took too long")
			}
		}
	}
}

// Requests to a node that listens and does not receive yet are reported as not sent, never lost;
// the node receives requests as soon as it is ready.
func TestNothingIsLostToAStart(t *testing.T) {
	a := start(t, childConfig{Node: 1, Incarnation: 1})
	b := start(t, childConfig{Node: 2, Incarnation: 1, Late: true})
	a.knows(2, b.addr)
	for range 3 {
		if got := a.tell("ask 2 1 1"); !strings.Contains(got, "request not sent") {
			t.Fatalf("a question to a node that takes none yet: %s", got)
		}
	}
	if got := b.tell("receive"); got != b.addr {
		t.Fatalf("the node that starts: %s", got)
	}
	b.knows(1, a.addr)
	a.asksAgain(2)
	b.asks(1)
}

// Requests waiting for a stopped node fail when gossip declares it dead, and it receives requests
// again when it continues.
func TestDownOfASilentNode(t *testing.T) {
	a, b := pair(t, certstest.Folder(t, "elsewhere"))
	a.asks(2)
	b.asks(1)
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if got := a.tell("down 2 1"); got != "ok" {
		t.Error(got)
	}
	soonest := patience
	for begin := time.Now(); a.stats().Failed == 0; { // attempts to connect come and go
		asked := time.Now()
		if got := a.tell("ask 2 1 1"); !strings.Contains(got, "request not sent") {
			t.Fatalf("a silent node: %s", got)
		}
		soonest = min(soonest, time.Since(asked))
		if time.Since(begin) > patience {
			t.Fatalf("no attempt was made: %+v", a.stats())
		}
	}
	if soonest > 2*time.Second {
		t.Errorf("it took %v to fail, each time", soonest)
	}
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	a.asksAgain(2)
	t.Logf("asked again %v after it went on", time.Since(begin))
}

// TestStalledNode: a node that stops reading fills only its own queue, which is bounded, and delays
// no other.
func TestStalledNode(t *testing.T) {
	dir := certstest.Folder(t, "elsewhere")
	a, b := pair(t, dir)
	c := start(t, childConfig{Node: 3, Incarnation: 1, Certs: dir})
	a.knows(3, c.addr)
	c.knows(1, a.addr)
	a.asks(2)
	a.asks(3)
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if got := a.tell("flood 2 200"); got == "0" || len(got) > 2 { // 64 MiB may be in flight
		t.Errorf("UNBOUNDED: %s of 200 questions of 1 MiB were taken for a stalled node", got)
	}
	if got := a.tell("ask 3 2000 64"); !strings.HasPrefix(got, "ok") {
		t.Errorf("STALLED: another node: %s", got)
	} else if took, err := time.ParseDuration(got[len("ok "):]); err != nil || took > 5*time.Second {
		t.Errorf("STALLED: 2,000 questions to another node: %s", got)
	}
	if took, err := time.ParseDuration(a.tell("quit")); err != nil || took > 4*time.Second {
		t.Errorf("STALLED: closing took %v, %v", took, err)
	}
}

// Certificates are renewed while nodes communicate, and the next connection uses the new ones.
func TestNewCertificates(t *testing.T) {
	dir := certstest.Folder(t, "elsewhere")
	a, b := pair(t, dir)
	a.asks(2)
	if _, err := certs.CreateNode(certs.Request{Dir: dir, Name: "y", Hosts: []string{"h"},
		Force: true}); err != nil {
		t.Fatal(err)
	}
	a.asks(2)
	b.kill()
	b = start(t, childConfig{Node: 2, Incarnation: 2, Certs: dir, Listen: b.addr})
	b.knows(1, a.addr)
	a.asksAgain(2)
}

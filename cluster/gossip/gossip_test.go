package gossip

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/version"
)

func TestMembersFindEachOther(t *testing.T) {
	a, b, c := trio(t)
	m, ok := c.Member(2)
	if !ok || m.Incarnation != 1 || m.Gossip != b.Addr() || m.Zone != "a" {
		t.Fatalf("member 2 as 3 sees it: %+v, %v", m, ok)
	}
	for _, w := range []mvcc.Worker{{Node: 1, Incarnation: 1}, {Node: 2, Incarnation: 1},
		{Node: 9, Incarnation: 1}, {}} {
		if a.Dead(w) {
			t.Errorf("SILENCE-IS-DEATH: %+v is mistaken for dead", w)
		}
	}
	b.Set(func(m *cluster.Member) {
		m.LeadsMeta, m.Draining, m.Load.Replicas, m.NodeID = 7, true, 12, 99
	})
	eventually(t, "what 2 says of itself", func() bool {
		m, ok := a.Member(2)
		return ok && m.LeadsMeta == 7 && m.Draining && m.Load.Replicas == 12
	})
	if self, _ := b.Member(2); self.LeadsMeta != 7 {
		t.Errorf("2 does not know itself: %+v", self)
	}
}

// told collects the events of a member.
type told struct {
	mu  sync.Mutex
	all []cluster.MemberEvent
}

func watch(g *Gossip) *told {
	w := &told{}
	g.Watch(func(e cluster.MemberEvent) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all = append(w.all, e)
	})
	return w
}

func (w *told) has(node, incarnation uint64, alive bool) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range w.all {
			if e.Member.NodeID == node && e.Member.Incarnation == incarnation && e.Alive == alive {
				return true
			}
		}
		return false
	}
}

func TestDeathIsKnown(t *testing.T) {
	a, b, c := trio(t)
	w := watch(a)
	began := time.Now()
	_ = b.stop(false) // as kill -9
	eventually(t, "2 is dead to 1", sees(a, 1, 3))
	t.Logf("known after %v", time.Since(began))
	eventually(t, "2 is dead to 3", sees(c, 1, 3))
	if dead := (mvcc.Worker{Node: 2, Incarnation: 1}); !a.Dead(dead) || !c.Dead(dead) ||
		a.Dead(mvcc.Worker{Node: 2, Incarnation: 2}) {
		t.Error("the incarnation that died, and only that, is dead")
	}
	eventually(t, "the event", w.has(2, 1, false))
}

// TestLostMemberIsSought: a node that has lost a member tries to join known nodes at a tenth of the interval,
// although it has other members: the sides of a partition reunite soon.
func TestLostMemberIsSought(t *testing.T) {
	var tries atomic.Int64
	a, _ := start(t, 1, 1, listen(t, "127.0.0.1:0"), func(c *Config) {
		c.Timing.Rejoin = 4 * time.Second
		c.Known = func() []string {
			tries.Add(1)
			return nil
		}
	})
	b, _ := start(t, 2, 1, listen(t, "127.0.0.1:0"), knows(a.Addr()))
	start(t, 3, 1, listen(t, "127.0.0.1:0"), knows(a.Addr()))
	eventually(t, "three members", sees(a, 1, 2, 3))
	if err := b.stop(false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two members", sees(a, 1, 3))
	began, before := time.Now(), tries.Load()
	eventually(t, "five attempts", func() bool { return tries.Load() >= before+5 })
	// At the usual interval four pauses take at least 8 s, at a tenth of it at most 2.4 s.
	if took := time.Since(began); took >= 8*time.Second {
		t.Errorf("five attempts take %v", took)
	}
}

func TestLeavingIsDeath(t *testing.T) {
	a, _, c := trio(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "3 is gone", sees(a, 1, 2))
	if !a.Dead(mvcc.Worker{Node: 3, Incarnation: 1}) {
		t.Error("who leaves is dead")
	}
}

// A restart at the same address is no event to memberlist; here the old incarnation is reported
// dead at once.
func TestRestartEndsTheOldIncarnation(t *testing.T) {
	a, b, _ := trio(t)
	w := watch(a)
	addr := b.Addr()
	_ = b.stop(false)
	b, _ = start(t, 2, 2, listen(t, addr), knows(a.Addr()))
	eventually(t, "the new incarnation", w.has(2, 2, true))
	eventually(t, "the end of the old one", w.has(2, 1, false))
	if !a.Dead(mvcc.Worker{Node: 2, Incarnation: 1}) ||
		a.Dead(mvcc.Worker{Node: 2, Incarnation: 2}) {
		t.Error("the old incarnation is dead, the new one is not")
	}
	eventually(t, "2 sees all", sees(b, 1, 2, 3))
}

// A process on a copied directory, or one that was believed dead, is refused once a later
// incarnation is known, and receives the reason.
func TestStaleIncarnationIsRefused(t *testing.T) {
	a, _, _ := trio(t)
	later, _ := start(t, 2, 5, listen(t, "127.0.0.1:0"), knows(a.Addr()))
	eventually(t, "the later incarnation", func() bool {
		m, ok := a.Member(2)
		return ok && m.Incarnation == 5
	})
	replaced := make(chan cluster.Member, 1)
	_, out := start(t, 2, 3, listen(t, "127.0.0.1:0"), func(c *Config) {
		c.Known = func() []string { return []string{a.Addr()} }
		c.Replaced = func(by cluster.Member) { replaced <- by }
	})
	select {
	case by := <-replaced:
		if by.Incarnation != 5 || by.Gossip != later.Addr() {
			t.Errorf("replaced by %+v", by)
		}
	case <-time.After(patience):
		t.Fatal("a stale incarnation is not told")
	}
	if m, _ := a.Member(2); m.Incarnation != 5 {
		t.Errorf("member 2 is %+v", m)
	}
	if !out.has("stopping this process") {
		t.Error("the log of the stale incarnation does not report it")
	}
}

func TestOtherClusterIsRefused(t *testing.T) {
	a, aLog := start(t, 1, 1, listen(t, "127.0.0.1:0"), nil)
	b, bLog := start(t, 2, 1, listen(t, "127.0.0.1:0"), func(c *Config) {
		c.ClusterID = "other"
		c.Known = func() []string { return []string{a.Addr()} }
	})
	eventually(t, "both logs say why", func() bool {
		return aLog.has("another cluster") && bLog.has("another cluster")
	})
	if !sees(a, 1)() || !sees(b, 2)() {
		t.Errorf("%v %v", a.Alive(), b.Alive())
	}
}

func writeKeys(t *testing.T, dir string, keys ...byte) {
	t.Helper()
	name := filepath.Join(dir, certs.GossipKeys)
	var lines []string
	for _, k := range keys {
		lines = append(lines, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{k}, 32)))
	}
	if err := os.WriteFile(name+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// Keys are rotated while two members communicate: add, use, remove.
func TestKeysRotate(t *testing.T) {
	files := []string{t.TempDir(), t.TempDir()}
	keyed := func(i int, known ...string) func(*Config) {
		return func(c *Config) { c.Certs, c.Known = files[i], func() []string { return known } }
	}
	writeKeys(t, files[0], 1)
	writeKeys(t, files[1], 1)
	a, _ := start(t, 1, 1, listen(t, "127.0.0.1:0"), keyed(0))
	b, _ := start(t, 2, 1, listen(t, "127.0.0.1:0"), keyed(1, a.Addr()))
	eventually(t, "two members", sees(a, 1, 2))
	has := func(g *Gossip, keys ...byte) func() bool {
		return func() bool {
			want := make([][]byte, len(keys))
			for i, k := range keys {
				want[i] = bytes.Repeat([]byte{k}, 32)
			}
			return sameKeys(g.ring, want)
		}
	}
	for _, step := range [][]byte{{1, 2}, {2, 1}, {2}, {4, 3, 2}, {3, 4}} {
		for i, g := range []*Gossip{a, b} {
			writeKeys(t, files[i], step...)
			eventually(t, "the keys", has(g, step...))
		}
		term := b.selfTerm() + 1
		b.Set(func(m *cluster.Member) { m.LeadsMeta = term })
		eventually(t, "word of it", func() bool { m, _ := a.Member(2); return m.LeadsMeta == term })
	}
	if err := os.WriteFile(filepath.Join(files[0], certs.GossipKeys), []byte("no key\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := start(t, 3, 1, listen(t, "127.0.0.1:0"), keyed(1, a.Addr()))
	eventually(t, "a broken file changes nothing", sees(c, 1, 2, 3))
}

func (g *Gossip) selfTerm() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self.LeadsMeta
}

func TestWrongKeyStaysOut(t *testing.T) {
	right, wrong := t.TempDir(), t.TempDir()
	writeKeys(t, right, 1)
	writeKeys(t, wrong, 2)
	a, _ := start(t, 1, 1, listen(t, "127.0.0.1:0"), func(c *Config) { c.Certs = right })
	tries := func(file string) *logged {
		_, out := start(t, 9, 1, listen(t, "127.0.0.1:0"), func(c *Config) {
			c.Certs, c.Known = file, func() []string { return []string{a.Addr()} }
		})
		return out
	}
	for _, file := range []string{wrong, ""} {
		out := tries(file)
		eventually(t, "the log reports that it cannot join", func() bool {
			return out.has("cannot join a known node")
		})
	}
	b, _ := start(t, 2, 1, listen(t, "127.0.0.1:0"), func(c *Config) {
		c.Certs, c.Known = right, func() []string { return []string{a.Addr()} }
	})
	eventually(t, "the right key", sees(b, 1, 2))
	if !sees(a, 1, 2)() {
		t.Errorf("1 sees %v", a.Alive())
	}
}

func TestKeysOfOneLength(t *testing.T) {
	dir := t.TempDir()
	if _, err := readKeys(dir); !errors.Is(err, ErrKeys) || !errors.Is(err, certs.ErrFiles) {
		t.Errorf("no file: %v", err)
	}
	short := base64.StdEncoding.EncodeToString(make([]byte, 16))
	if err := os.WriteFile(filepath.Join(dir, certs.GossipKeys), []byte(short+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKeys(dir); !errors.Is(err, ErrKeys) {
		t.Errorf("a key of 16 bytes: %v", err)
	}
}

func TestMetadataIsBounded(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	long := strings.Repeat("a", 200) + ":1"
	_, err := Open(Config{
		ClusterID: "one", Self: cluster.Member{
			NodeID: 1, Incarnation: 1, Listen: long, Peer: long, HTTP: long,
		},
	}, l)
	if !errors.Is(err, ErrTooLong) {
		t.Fatalf("three addresses of 200 bytes: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Garbage on the port, TCP or UDP, has no effect except some log lines.
func TestGarbage(t *testing.T) {
	a, out := start(t, 1, 1, listen(t, "127.0.0.1:0"), nil)
	b, _ := start(t, 2, 1, listen(t, "127.0.0.1:0"), knows(a.Addr()))
	eventually(t, "two members", sees(a, 1, 2))
	for i := range 64 {
		junk := bytes.Repeat([]byte{byte(i), 0xff, byte(7 * i)}, 20*i)
		for _, network := range []string{"udp", "tcp"} {
			c, err := net.Dial(network, a.Addr())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(junk)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Set(func(m *cluster.Member) { m.LeadsMeta = 3 })
	eventually(t, "1 still listens", func() bool { m, _ := a.Member(2); return m.LeadsMeta == 3 })
	if !sees(a, 1, 2)() {
		t.Errorf("%v", a.Alive())
	}
	if n := out.count("level=WARN"); n == 0 || n > 20 {
		t.Errorf("%d warnings", n)
	}
}

// A listener that was never used ends, also with callers waiting to be accepted.
func TestUnusedListener(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEarlierBuildIsRefused: once the cluster is at a version, members whose builds do not support
// it are refused, and all others are admitted.
func TestEarlierBuildIsRefused(t *testing.T) {
	gate := version.NewGate(version.Range{Oldest: 2, Newest: 3}, 3, nil)
	a, log := start(t, 1, 1, listen(t, "127.0.0.1:0"), func(c *Config) { c.Gate = gate })
	start(t, 2, 1, listen(t, "127.0.0.1:0"), knows(a.Addr())) // sends no versions
	eventually(t, "the log tells", func() bool {
		return log.has("the cluster is at version 3, and the build supports 2")
	})
	start(t, 3, 1, listen(t, "127.0.0.1:0"), func(c *Config) {
		c.Self.Versions = version.Range{Oldest: 3, Newest: 8}
		c.Known = func() []string { return []string{a.Addr()} }
	})
	eventually(t, "a later build", sees(a, 1, 3))
	if m, _ := a.Member(3); m.Versions != (version.Range{Oldest: 3, Newest: 8}) {
		t.Errorf("it knows %v", m.Versions)
	}
}

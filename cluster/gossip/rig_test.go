package gossip

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fast is for loopback. Probe timeouts stay generous: a busy machine must not appear dead.
var fast = Timing{
	Probe: 100 * time.Millisecond, ProbeTimeout: 50 * time.Millisecond,
	Gossip:   10 * time.Millisecond,
	PushPull: 300 * time.Millisecond, Update: 10 * time.Millisecond, Rejoin: 100 * time.Millisecond,
	Keys: 10 * time.Millisecond,
}

// logged collects a logger's lines.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func listen(t *testing.T, addr string) *Listener {
	t.Helper()
	var l *Listener
	eventually(t, "bind "+addr, func() bool { // a port that was just closed may stay in use for a moment
		var err error
		l, err = Listen(addr, slog.New(slog.DiscardHandler))
		return err == nil
	})
	return l
}

// start opens a member; change adapts its configuration.
func start(t *testing.T, node, incarnation uint64, l *Listener,
	change func(*Config)) (*Gossip, *logged) {
	t.Helper()
	out := &logged{}
	cfg := Config{
		ClusterID: "one", Timing: fast, Logger: slog.New(slog.NewTextHandler(out, nil)),
		Self: cluster.Member{
			NodeID: node, Incarnation: incarnation, Listen: "127.0.0.1:1", Zone: "a",
		},
	}
	if change != nil {
		change(&cfg)
	}
	g, err := Open(cfg, l)
	if err != nil {
		t.Fatal(errors.Join(err, l.Close()))
	}
	t.Cleanup(func() { _ = g.stop(false) })
	return g, out
}

func knows(addrs ...string) func(*Config) {
	return func(c *Config) { c.Known = func() []string { return addrs } }
}

const patience = 30 * time.Second

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func sees(g *Gossip, nodes ...uint64) func() bool {
	return func() bool {
		alive := g.Alive()
		if len(alive) != len(nodes) {
			return false
		}
		for i, m := range alive {
			if m.NodeID != nodes[i] {
				return false
			}
		}
		return true
	}
}

func trio(t *testing.T) (a, b, c *Gossip) {
	t.Helper()
	a, _ = start(t, 1, 1, listen(t, "127.0.0.1:0"), nil)
	b, _ = start(t, 2, 1, listen(t, "127.0.0.1:0"), knows(a.Addr()))
	c, _ = start(t, 3, 1, listen(t, "127.0.0.1:0"), knows(a.Addr()))
	for _, g := range []*Gossip{a, b, c} {
		eventually(t, "three members", sees(g, 1, 2, 3))
	}
	return a, b, c
}

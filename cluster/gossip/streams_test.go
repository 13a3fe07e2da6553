package gossip

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/percolator-go/percolator/cluster"
)

// openFiles is how many descriptors this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here:", err)
	}
	return len(entries)
}

// TestIdleConnectionsAreBounded: a stranger who opens connections to the gossip port and says
// nothing takes no more than a fixed number of the node's descriptors, and the members go on
// meanwhile; a new one gets in.
func TestIdleConnectionsAreBounded(t *testing.T) {
	a, _, _ := trio(t)
	before, most := openFiles(t), 0
	const strangers = 400
	for i := range strangers {
		c, err := net.DialTimeout("tcp", a.Addr(), patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		most = max(most, openFiles(t)-before-(i+1))
	}
	if slack := 40; most > maxStreams+slack { // the members' own
		t.Errorf("the node holds %d descriptors for %d idle connections; at most %d", most,
			strangers, maxStreams)
	}
	term := a.selfTerm() + 1
	a.Set(func(m *cluster.Member) { m.LeadsMeta = term })
	d, _ := start(t, 4, 1, listen(t, "127.0.0.1:0"), knows(a.Addr()))
	eventually(t, "a fourth member sees all", sees(d, 1, 2, 3, 4))
	eventually(t, "word of a change", func() bool {
		m, _ := d.Member(1)
		return m.LeadsMeta == term
	})
}

// TestOldestStreamMakesRoom: a new connection is taken while others hold all places, and the oldest
// of them is closed.
func TestOldestStreamMakesRoom(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	defer func() { _ = l.Close() }()
	var inside, outside []net.Conn
	for range maxStreams + 1 {
		c, err := net.DialTimeout("tcp", l.Addr(), patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		outside = append(outside, c)
		select {
		case s := <-l.StreamCh():
			inside = append(inside, s)
		case <-time.After(patience):
			t.Fatalf("connection %d is not taken", len(outside))
		}
	}
	if err := outside[0].SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := outside[0].Read(make([]byte, 1)); err == nil ||
		errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection is open: %v", err)
	}
	for i, c := range outside[1:] {
		if _, err := c.Write([]byte{1}); err != nil {
			t.Errorf("connection %d of %d: %v", i+1, maxStreams, err)
		}
		if err := inside[i+1].Close(); err != nil {
			t.Error(err)
		}
	}
}

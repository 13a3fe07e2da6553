package gossip

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/percolator-go/percolator/cluster"
)

// openFiles returns the number of descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here:", err)
	}
	return len(entries)
}

// TestIdleConnectionsAreBounded: a stranger that opens connections to the gossip port and sends
// nothing takes a bounded number of the node's descriptors, and the members continue; a new member
// can join.
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

// TestStreamsOfOneAddressMakeRoom: a new connection is accepted while others hold all places, and
// closes the oldest one of the address with the most.
func TestStreamsOfOneAddressMakeRoom(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	defer func() { _ = l.Close() }()
	connect := func(from string) (outside, inside net.Conn) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
		outside, err := d.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = outside.Close() })
		select {
		case inside = <-l.StreamCh():
			t.Cleanup(func() { _ = inside.Close() })
		case <-time.After(patience):
			t.Fatal("a connection is not taken")
		}
		return outside, inside
	}
	member, taken := connect("127.0.0.2")
	oldest, _ := connect("127.0.0.1")
	for range 2 * maxStreams {
		connect("127.0.0.1")
	}
	if err := oldest.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := oldest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection is open: %v", err)
	}
	if _, err := member.Write([]byte{1}); err != nil {
		t.Error(err)
	}
	if n, err := taken.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the connection of another address was closed: %v", err)
	}
}

// TestWatchersInOrder: each event reaches the watchers in the order in which they were added.
func TestWatchersInOrder(t *testing.T) {
	table := newTable(cluster.Member{NodeID: 1, Incarnation: 1})
	var got, want []int
	for i := range 20 {
		want = append(want, i)
		defer table.watch(func(cluster.MemberEvent) { got = append(got, i) })()
	}
	table.mu.Lock()
	table.queue(cluster.MemberEvent{Member: cluster.Member{NodeID: 2, Incarnation: 1}})
	table.mu.Unlock()
	table.deliver()
	if !slices.Equal(got, want) {
		t.Errorf("called in the order %v", got)
	}
}

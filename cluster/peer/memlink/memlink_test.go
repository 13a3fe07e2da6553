package memlink_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// sink records arriving batches at a node, as "from:to_node".
type sink struct {
	mu  sync.Mutex
	got []string
}

func (s *sink) take(b *wire.PeerBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, fmt.Sprintf("%d:%d", b.FromNode, b.ToNode))
}

// since returns what has arrived since the last call.
func (s *sink) since() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := fmt.Sprint(s.got)
	s.got = nil
	return got
}

func add(n *memlink.Network, node uint64) (peer.Link, *sink) {
	l, s := n.Link(node), &sink{}
	l.Receive(s.take)
	return l, s
}

// batch returns a batch identified by its ToNode.
func batch(from, number uint64) *wire.PeerBatch {
	return &wire.PeerBatch{FromNode: from, ToNode: number}
}

func TestInOrderAndByCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memlink.NewNetwork()
		a, as := add(n, 1)
		b, bs := add(n, 2)
		defer a.Close()
		defer b.Close()
		send := func(l peer.Link, from, to, number uint64) {
			t.Helper()
			if err := l.Send(to, batch(from, number), func(error) {}); err != nil {
				t.Error(err)
			}
		}
		both := func(want1, want2 string) {
			t.Helper()
			for i := range uint64(3) {
				send(a, 1, 2, i)
			}
			send(b, 2, 1, 9)
			if got1, got2 := as.since(), bs.since(); got1 != want1 || got2 != want2 {
				t.Errorf("%s and %s arrived, want %s and %s", got1, got2, want1, want2)
			}
		}
		both("[2:9]", "[1:0 1:1 1:2]")
		n.Cut(1, 2)
		both("[2:9]", "[]")
		n.Heal()
		n.Isolate(2)
		both("[]", "[]")
		n.Heal()
		n.Partition([]uint64{1, 3}, []uint64{2})
		both("[]", "[]")
		n.Reconnect(3)
		both("[]", "[]")
		n.Reconnect(2)
		both("[2:9]", "[1:0 1:1 1:2]")
		if n.Lost() != 3+4+4+4 {
			t.Errorf("%d lost", n.Lost())
		}
		if err := a.Send(7, batch(1, 1), func(error) {}); !errors.Is(err, memlink.ErrUnreachable) {
			t.Error(err)
		}
	})
}

func TestFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memlink.NewNetwork()
		n.Filter = func(_, _ uint64, b *wire.PeerBatch) (copies []time.Duration) {
			for range b.ToNode % 3 {
				copies = append(copies, time.Duration(b.ToNode/3)*time.Second)
			}
			return copies
		}
		a, _ := add(n, 1)
		b, bs := add(n, 2)
		defer a.Close()
		defer b.Close()
		// 8, 7: twice and once after 2 s; 6 never; 5, 4 after 1 s; 2, 1 at once
		for i := uint64(8); i > 0; i-- {
			if err := a.Send(2, batch(1, i), func(error) {}); err != nil {
				t.Error(err)
			}
		}
		if got := bs.since(); got != "[1:2 1:2 1:1]" {
			t.Error(got)
		}
		<-time.After(time.Second)
		if got := bs.since(); got != "[1:5 1:5 1:4]" && got != "[1:4 1:5 1:5]" &&
			got != "[1:5 1:4 1:5]" {
			t.Error(got)
		}
	})
}

// A restarted node receives nothing that was addressed to its earlier incarnation, and its old link
// sends nothing.
func TestBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memlink.NewNetwork()
		n.Filter = func(uint64, uint64, *wire.PeerBatch) []time.Duration {
			return []time.Duration{time.Second}
		}
		a, as := add(n, 1)
		old, _ := add(n, 2)
		if err := a.Send(2, batch(1, 1), func(error) {}); err != nil {
			t.Error(err)
		}
		b, bs := add(n, 2)
		if err := old.Send(1, batch(2, 1), func(error) {}); !errors.Is(err, memlink.ErrUnreachable) {
			t.Error(err)
		}
		<-time.After(2 * time.Second)
		if got := bs.since() + as.since(); got != "[][]" {
			t.Error(got)
		}
		for _, l := range []peer.Link{a, old, b} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

package peer_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// slowLink is a link that sends a batch only on release.
type slowLink struct {
	mu   sync.Mutex
	held []held
	lost func(uint64)

	receive func(*wire.PeerBatch)
}

type held struct {
	batch *wire.PeerBatch
	then  func(error)
}

var _ peer.Link = (*slowLink)(nil)

func (l *slowLink) Send(_ uint64, b *wire.PeerBatch, then func(error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, held{b, then})
	return nil
}

func (l *slowLink) Lost(fn func(uint64))             { l.lost = fn }
func (l *slowLink) Receive(fn func(*wire.PeerBatch)) { l.receive = fn }
func (l *slowLink) Down(uint64, uint64)              {}
func (l *slowLink) Close() error                     { return nil }

// release sends the oldest batch.
func (l *slowLink) release(err error) *wire.PeerBatch {
	l.mu.Lock()
	h := l.held[0]
	l.held = l.held[1:]
	l.mu.Unlock()
	h.then(err)
	synctest.Wait()
	return h.batch
}

func (l *slowLink) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

func paced(t *testing.T, cfg peer.Config, fn func(t *testing.T, l *slowLink, p *peer.Peers)) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLink{}
		p := peer.New(l, self(1, 1), &handler{}, cfg)
		fn(t, l, p)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// While the link is busy with two batches, later messages wait and share the next one, Raft
// messages first.
func TestWhatWaitsGoesTogether(t *testing.T) {
	paced(t, peer.Config{}, func(t *testing.T, l *slowLink, p *peer.Peers) {
		tell := func() { p.Tell(2, time.Time{}, ask(1), func(*wire.PeerResponse, error) {}) }
		for range 2 {
			tell()
			synctest.Wait()
		}
		for range 100 {
			tell()
		}
		p.Raft(&wire.RaftMessage{TabletId: 7, FromNode: 1, ToNode: 2})
		synctest.Wait()
		if l.count() != 2 {
			t.Fatalf("the link has %d batches", l.count())
		}
		l.release(nil)
		l.release(nil)
		if l.count() != 1 {
			t.Fatalf("the link has %d batches", l.count())
		}
		if b := l.release(nil); len(b.Requests) != 100 || len(b.Raft) != 1 {
			t.Errorf("%d requests and %d Raft messages", len(b.Requests), len(b.Raft))
		}
	})
}

// Raft messages that would wait beyond the bounds are dropped, and counted.
func TestRaftIsDropped(t *testing.T) {
	paced(t, peer.Config{RaftLimit: 5, RaftBytes: 1 << 20},
		func(t *testing.T, l *slowLink, p *peer.Peers) {
			for range 2 { // they make the link busy
				p.Raft(&wire.RaftMessage{ToNode: 2})
				synctest.Wait()
			}
			p.Raft(&wire.RaftMessage{ToNode: 2, Message: make([]byte, 1<<19)})
			p.Raft(&wire.RaftMessage{ToNode: 2, Message: make([]byte, 1<<19)}) // over the bytes
			for range 10 {
				p.Raft(&wire.RaftMessage{ToNode: 2})
			}
			p.Raft(&wire.RaftMessage{}) // to no node
			if st := p.Stats(); st.Raft != 7 || st.RaftDropped != 8 {
				t.Errorf("%+v", st)
			}
			synctest.Wait()
			l.release(nil)
			l.release(nil)
			if b := l.release(nil); len(b.Raft) != 5 {
				t.Errorf("%d in the next batch", len(b.Raft))
			}
			p.Raft(&wire.RaftMessage{ToNode: 2})
			if st := p.Stats(); st.Raft != 8 {
				t.Errorf("no space was released: %+v", st)
			}
		})
}

// The error of a failed request depends on how far the request got.
func TestFailureSaysHowFar(t *testing.T) {
	paced(t, peer.Config{}, func(t *testing.T, l *slowLink, p *peer.Peers) {
		got := make([]error, 4)
		tell := func(i int, deadline time.Time) {
			p.Tell(2, deadline, ask(1), func(_ *wire.PeerResponse, err error) { got[i] = err })
			synctest.Wait()
		}
		tell(0, time.Time{})
		tell(1, time.Time{})
		tell(2, time.Now().Add(time.Second)) // waits for the link
		tell(3, time.Time{})
		l.release(nil)
		l.release(errors.New("no connection"))
		if !errors.Is(got[1], txn.ErrNotSent) {
			t.Errorf("not taken by the link: %v", got[1])
		}
		l.lost(2)
		if !errors.Is(got[0], peer.ErrLost) || errors.Is(got[0], txn.ErrNotSent) {
			t.Errorf("LOST-NOT-SENT: on its way: %v", got[0])
		}
		// The third was in the next batch; its deadline passes there, so the outcome is unknown.
		wait(2 * time.Second)
		if got[2] == nil || errors.Is(got[2], txn.ErrNotSent) {
			t.Errorf("with the link: %v", got[2])
		}
		if got[3] != nil {
			t.Errorf("waiting: %v", got[3])
		}
	})
}

// A request whose deadline passes in the outbox is not sent.
func TestExpiredIsNotSent(t *testing.T) {
	paced(t, peer.Config{}, func(t *testing.T, l *slowLink, p *peer.Peers) {
		for range 2 {
			p.Tell(2, time.Time{}, ask(1), func(*wire.PeerResponse, error) {})
			synctest.Wait()
		}
		var got error
		p.Tell(2, time.Now().Add(time.Second), ask(1), func(_ *wire.PeerResponse, err error) {
			got = err
		})
		wait(2 * time.Second)
		if !errors.Is(got, txn.ErrNotSent) {
			t.Errorf("in the outbox: %v", got)
		}
		l.release(nil)
		l.release(nil)
		if l.count() != 0 {
			t.Error("it was sent")
		}
	})
}

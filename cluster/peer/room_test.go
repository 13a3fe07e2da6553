package peer_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/wire"
)

// shelf answers each read with as many bytes as its timestamp says, and counts those that
// it has answered.
type shelf struct {
	mu   sync.Mutex
	done map[uint64]int // reads by what they take
}

func (s *shelf) serve(_ uint64, _ time.Time, req *wire.PeerRequest, reply func(*wire.PeerResponse)) {
	n := req.GetTablet().GetGet().GetAt()
	s.mu.Lock()
	s.done[n]++
	s.mu.Unlock()
	reply(&wire.PeerResponse{Body: &wire.PeerResponse_Tablet{Tablet: &pb.TabletResponse{Result: &pb.TabletResponse_Get{
		Get: &pb.GetResponse{Results: []*pb.ReadResult{{Value: make([]byte, n)}}},
	}}}})
}

func (s *shelf) count(bytes uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[bytes]
}

// reading is a batch of so many reads from a node; bounded: they say how large their
// answers may become.
func reading(from uint64, first, count int, bytes uint64, bounded bool) *wire.PeerBatch {
	b := &wire.PeerBatch{ClusterId: "c", FromNode: from, FromIncarnation: 1, ToNode: 1}
	for i := range count {
		r := &pb.TabletRequest{TabletId: 2, Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{At: bytes}}}
		if bounded {
			r.MaxAnswerBytes = uint32(bytes) + 1<<10
		}
		b.Requests = append(b.Requests, &wire.PeerRequest{Id: uint64(first + i), Body: &wire.PeerRequest_Tablet{Tablet: r}})
	}
	return b
}

// drain lets go of batches until there is none, and returns the answers in them: without
// errors, and refusals.
func drain(t *testing.T, l *slowLink) (answers, refusals int) {
	for l.count() > 0 {
		for _, r := range l.release(nil).Responses {
			switch {
			case r.GetError() == nil:
				answers++
			case r.Error.Code == pb.Error_CODE_OVERLOADED && r.Error.RetryAfterMs > 0:
				refusals++
			default:
				t.Errorf("answered with %v", r.Error)
			}
		}
	}
	return answers, refusals
}

// Answers to other nodes' reads that the link has not sent are bounded, of one node and
// of all; those that there is no room for are done when there is. Who asks for little is
// answered at once.
func TestReadsAreBounded(t *testing.T) {
	const size, all, nodes, each = 4 << 20, 64 << 20, 4, 40
	for name, bounded := range map[string]bool{"of clients": true, "of nodes": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s := &slowLink{}, &shelf{done: map[uint64]int{}}
				p := peer.New(l, self(1, 1), &handler{fn: s.serve}, peer.Config{ReadBytes: all})
				for node := range uint64(nodes) {
					l.receive(reading(2+node, 0, each, size, bounded))
					synctest.Wait()
					if n := p.Held(); node == 0 && (n > all/2 || n < all/4) {
						t.Errorf("answers to one node take %d bytes; there is room for %d in all", n, all)
					}
				}
				if n := p.Held(); n > all || n < all/2 {
					t.Errorf("answers take %d bytes; there is room for %d", n, all)
				}
				if n := s.count(size); n > nodes*each || bounded && n*size > all {
					t.Errorf("%d reads were done", n)
				}
				l.receive(reading(2, 1000, 100, 100, bounded))
				synctest.Wait()
				if n := s.count(100); n != 100 {
					t.Errorf("%d of 100 small reads were done", n)
				}
				if answers, refusals := drain(t, l); answers != nodes*each+100 || refusals != 0 {
					t.Errorf("%d answers, %d refusals", answers, refusals)
				}
				if n := p.Held(); n != 0 {
					t.Errorf("%d bytes are not given back", n)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A read that there is no room for in a while is refused, and may come again; the room is
// given back to those that come later.
func TestReadIsRefused(t *testing.T) {
	const size, all = 4 << 20, 64 << 20
	synctest.Test(t, func(t *testing.T) {
		l, s := &slowLink{}, &shelf{done: map[uint64]int{}}
		p := peer.New(l, self(1, 1), &handler{fn: s.serve}, peer.Config{ReadBytes: all})
		l.receive(reading(2, 0, 40, size, true))
		synctest.Wait()
		done := s.count(size)
		wait(2 * time.Second)
		if s.count(size) != done {
			t.Error("reads were done without room")
		}
		if answers, refusals := drain(t, l); answers != done || refusals != 40-done {
			t.Errorf("%d answers of %d, %d refusals", answers, done, refusals)
		}
		if st := p.Stats(); st.ReadsRefused != uint64(40-done) || st.ReadsWaited != st.ReadsRefused {
			t.Errorf("%+v", st)
		}
		l.receive(reading(2, 100, done, size, true))
		synctest.Wait()
		if s.count(size) != 2*done {
			t.Error("room was not given back")
		}
		drain(t, l)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

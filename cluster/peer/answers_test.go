package peer_test

import (
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/wire"
)

// Answers not yet taken by the link are bounded in bytes; large ones leave half of the bound to the
// others. One that does not fit is replaced by "unknown", and there is space again once others are
// sent.
func TestAnswersAreBounded(t *testing.T) {
	const all, large, busy = 8 << 20, 1 << 20, 2 // number of answers held by the link
	synctest.Test(t, func(t *testing.T) {
		l := &slowLink{}
		answer := func(_ uint64, _ time.Time, req *wire.PeerRequest,
			reply func(*wire.PeerResponse)) {
			reply(&wire.PeerResponse{Body: &wire.PeerResponse_Tablet{Tablet: &pb.TabletResponse{Result: &pb.TabletResponse_Get{
				Get: &pb.GetResponse{
					Results: []*pb.ReadResult{
						{Value: make([]byte, req.GetTablet().GetGet().GetAt())},
					},
				},
			}}}})
		}
		p := peer.New(l, self(1, 1), &handler{fn: answer},
			peer.Config{AnswerBytes: all, BatchMessages: 1})
		ask := func(count int, bytes uint64) {
			b := &wire.PeerBatch{ClusterId: "c", FromNode: 2, FromIncarnation: 1, ToNode: 1}
			for range count {
				req := &pb.TabletRequest{
					TabletId: 2, Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{At: bytes}},
				}
				b.Requests = append(b.Requests,
					&wire.PeerRequest{Body: &wire.PeerRequest_Tablet{Tablet: req}})
			}
			l.receive(b)
			synctest.Wait()
		}
		drain := func() (whole, replaced int) {
			for l.count() > 0 {
				for _, r := range l.release(nil).Responses {
					if r.GetError().GetCode() == pb.Error_CODE_UNKNOWN && r.GetTablet() == nil &&
						r.Error != nil {
						replaced++
					} else {
						whole++
					}
				}
			}
			return whole, replaced
		}
		for range busy {
			ask(1, large)
		}
		ask(all/large, large)
		ask(100, 32<<10)
		whole, replaced := drain()
		if want := busy + all/large/2 - 1 + 100; whole != want || replaced != all/large/2+1 {
			t.Errorf("%d answers, want %d; %d were replaced", whole, want, replaced)
		}
		if st := p.Stats(); st.AnswersDropped != uint64(replaced) {
			t.Errorf("%+v", st)
		}
		ask(all/large/2-1, large)
		if whole, replaced := drain(); replaced != 0 {
			t.Errorf("no space was released: %d answers, %d replaced", whole, replaced)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

package rpc

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// unread is a stream whose client reads a message only when it is told to.
type unread struct {
	grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	read chan struct{}
}

func (u unread) Send(*pb.OperationResults) error {
	<-u.read
	return nil
}

// A client that asks for much and reads nothing of it is not read on once its answers fill their share of memory; when it
// reads again it is served again. One that asks for little has all its operations under way.
func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ size, least, most int }{
			{4 << 20, maxAnswers/(4<<20) - 1, maxAnswers/(4<<20) + 1},
			{10 << 20, maxAnswers/(10<<20) - 1, maxAnswers/(10<<20) + 1},
			{100, maxAnswers / leastAnswer, maxAnswers / 100},
		} {
			stream := unread{read: make(chan struct{})}
			o := &operations{
				stream: stream, stop: make(chan struct{}), typic: firstAnswer,
				wake: make(chan struct{}, 1), less: make(chan struct{}, 1),
			}
			idle, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- o.write(idle) }()
			taken, ended := 0, make(chan struct{})
			response := &pb.TabletResponse{Result: &pb.TabletResponse_Get{Get: &pb.GetResponse{
				Results: []*pb.ReadResult{{Value: make([]byte, tc.size)}},
			}}}
			go func() { // as read does, with one worker
				defer close(ended)
				for taken < tc.most+100 && o.fits() {
					o.answer(&pb.OperationResult{Response: response})
					taken++
				}
			}()
			synctest.Wait()
			if taken < tc.least || taken > tc.most {
				t.Errorf("%d answers of %d bytes wait for a client that reads none; want %d to %d", taken, tc.size, tc.least, tc.most)
			}
			before := taken
			close(stream.read)
			synctest.Wait()
			if taken <= before {
				t.Errorf("%d answers of %d bytes before the client reads, %d after", before, tc.size, taken)
			}
			close(o.stop)
			<-ended
			close(idle)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

package httpd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// TestAnswersAreMadeOnce: a thousand queries cause one query of the cluster and one JSON encoding,
// however many are concurrent.
func TestAnswersAreMadeOnce(t *testing.T) {
	var asked, encoded atomic.Int64
	w := newClusterWatch(Options{
		Cluster: func(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error) {
			asked.Add(1)
			return &pb.ClusterStatusResponse{NodeId: 7}, []*pb.Table{{Id: 16, Name: "docs"}}, nil
		},
	}, time.Hour)
	defer w.close()
	w.encode = func(m proto.Message) ([]byte, error) {
		encoded.Add(1)
		return pbjson.Marshal(m)
	}
	mux := http.NewServeMux()
	w.serve(mux, newLogins(Options{}))
	ask := func() string {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"/api/v1/cluster", nil))
		return answer.Body.String()
	}
	first := ask()
	var askers sync.WaitGroup
	for range 50 {
		askers.Go(func() {
			for range 20 {
				if got := ask(); got != first {
					t.Errorf("%s, and then %s", first, got)
				}
			}
		})
	}
	askers.Wait()
	// The status and a table, for the stream and for queries.
	if asked.Load() != 1 || encoded.Load() != 4 {
		t.Errorf("queried %d times, %d messages were encoded", asked.Load(), encoded.Load())
	}
}

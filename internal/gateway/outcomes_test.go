package gateway

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestKeysCommitOnce: clients that increment a counter, and repeat each request with its key until
// it is answered, count exactly, although operations are lost and duplicated, and for periods all
// answers of tablets are lost.
func TestKeysCommitOnce(t *testing.T) {
	s := serve(t, nil)
	began := time.Now()
	s.process.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetGet() != nil || req.GetScan() != nil {
			return txntest.Fault{}
		}
		// A period is longer than the attempts of a commit to find its outcome.
		if time.Since(began)/(60*time.Millisecond)%2 == 1 {
			return txntest.Fault{Reply: true}
		}
		switch rand.IntN(20) {
		case 0:
			return txntest.Fault{Lost: true}
		case 1:
			return txntest.Fault{Twice: true}
		}
		return txntest.Fault{}
	})
	var committed atomic.Int64
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			for i := 0; time.Since(began) < 600*time.Millisecond; i++ {
				for attempt := 0; !s.increment(fmt.Sprint(worker, "-", i, "-", attempt)); attempt++ {
				}
				committed.Add(1)
			}
		})
	}
	wait.Wait()
	s.process.Inject(nil)
	if got := s.get("counter"); got != fmt.Sprint(committed.Load()) {
		t.Errorf("COMMITTED-TWICE: the counter is at %s after %d increments", got, committed.Load())
	}
}

// increment adds 1 to the counter unless another client has changed it, and reports whether it
// added 1.
func (s *served) increment(key string) bool {
	s.Helper()
	before := s.get("counter")
	n, _ := strconv.Atoi(before)
	req := &gw.TransactRequest{
		Conditions: []*gw.Condition{equals("counter", before)},
		Writes:     []*gw.CellWrite{write("counter", fmt.Sprint(n+1)), write("a", "other tablet")}, IdempotencyKey: key,
	}
	for {
		resp, err := s.transact(req)
		if err == nil {
			return resp.Committed
		}
		if s.Context().Err() != nil {
			return true
		}
	}
}

// TestRepeatedRequest: a repeated request has the answer of the first; the key of another request, or of
// another method, is refused.
func TestRepeatedRequest(t *testing.T) {
	s := serve(t, nil)
	s.set("a", "1")
	req := &gw.TransactRequest{
		Reads: []*gw.Key{key("a")}, Conditions: []*gw.Condition{equals("a", "1")},
		Writes: []*gw.CellWrite{write("a", "2")}, IdempotencyKey: "key",
	}
	first, err := s.transact(req)
	if err != nil || !first.Committed || first.Repeated {
		t.Fatalf("%v, %v", first, err)
	}
	s.set("a", "3")
	again, err := s.transact(req)
	if err != nil || !again.Repeated {
		t.Fatalf("COMMITTED-TWICE: %v, %v", again, err)
	}
	if again.Repeated = false; !proto.Equal(first, again) || s.get("a") != "3" {
		t.Errorf("the answer was %v, and is %v when it is repeated", first, again)
	}
	other := proto.CloneOf(req)
	other.Writes[0] = write("a", "4")
	if _, err := s.transact(other); reason(err) != gw.Failure_REASON_KEY_REUSED {
		t.Errorf("another request with the key: %v", err)
	}
	if _, err := s.data.Begin(t.Context(), connect.NewRequest(&gw.BeginRequest{IdempotencyKey: "key"})); reason(err) !=
		gw.Failure_REASON_KEY_REUSED {
		t.Errorf("a session with the key: %v", err)
	}
}

// TestUnknownOutcome: without a key the caller learns that the outcome is unknown; with a key it is found out.
func TestUnknownOutcome(t *testing.T) {
	s := serve(t, nil)
	var lossy atomic.Bool
	s.process.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if lossy.Load() && req.GetGet() == nil {
			return txntest.Fault{Reply: true}
		}
		return txntest.Fault{}
	})
	for _, keyed := range []string{"", "key"} {
		lossy.Store(true)
		time.AfterFunc(200*time.Millisecond, func() { lossy.Store(false) })
		resp, err := s.transact(&gw.TransactRequest{Writes: []*gw.CellWrite{write("b"+keyed, "v")}, IdempotencyKey: keyed})
		switch {
		case keyed == "" && reason(err) != gw.Failure_REASON_COMMIT_UNKNOWN:
			t.Errorf("without a key: %v, %v", resp, err)
		case keyed != "" && (err != nil || !resp.Committed):
			t.Errorf("with a key: %v, %v", resp, err)
		}
		for lossy.Load() {
			<-time.After(time.Millisecond)
		}
	}
}

package tablet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/reads"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// waitingReads returns the number of read jobs that wait for a worker.
func (r *rig) waitingReads() int {
	n, _ := r.readers.Waiting()
	return n
}

// submitRead submits a job to the read workers.
func submitRead(p *reads.Pool, job func()) {
	lane, _ := p.Lanes()
	lane.Submit(job)
}

// occupy keeps all read workers of the rig busy until the release.
func (r *rig) occupy() (release func()) {
	r.tb.Helper()
	gate := make(chan struct{})
	for range 2 {
		submitRead(r.readers, func() { <-gate })
	}
	r.until(1, "the workers are busy", func(*pb.StatusResponse) bool {
		return r.waitingReads() == 0
	})
	return sync.OnceFunc(func() { close(gate) })
}

func scanOf(at mvcc.Timestamp) *pb.TabletRequest {
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_Scan{
			Scan: &pb.ScanRequest{At: uint64(at), Span: &pb.Span{Table: cellOf("a").Table}},
		},
	}
}

// flood is a number of scans sent to a tablet, and their outcomes.
type flood struct {
	refused int // because the tablet's queue was full
	sent    int
	answers chan result
}

// flood sends n scans to tablet 2.
func (r *rig) flood(n int) *flood {
	r.tb.Helper()
	f := &flood{answers: make(chan result, n)}
	at := r.take(1)
	for range n {
		switch err := r.port(2).Tell(scanOf(at), time.Time{}, false, func(a result) {
			f.answers <- a
		}); {
		case errors.Is(err, actorkit.ErrOverloaded):
			f.refused++
		case err != nil:
			r.tb.Fatal(err)
		default:
			f.sent++
		}
	}
	return f
}

// ended waits for all answers and counts them by code.
func (f *flood) ended(t *testing.T) map[pb.Error_Code]int {
	t.Helper()
	codes := map[pb.Error_Code]int{}
	for range f.sent {
		a := answered(t, "a scan", f.answers)
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		codes[a.Value.GetError().GetCode()]++
	}
	return codes
}

// TestReadsDoNotBlockTheTablet: while the read workers are blocked and thousands of scans wait for
// them, the tablet and its neighbour answer status requests and accept writes. Scans beyond the
// queue's limit are refused, the others are answered when the workers continue.
func TestReadsDoNotBlockTheTablet(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	release := r.occupy()
	defer release()
	f := r.flood(actorkit.DefaultQueueLimit + 1000)
	if f.refused < 1000 {
		t.Errorf("%d scans are refused of %d beyond the limit", f.refused, 1000)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	status := &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}
	for _, id := range []uint64{2, 1} {
		if _, err := r.port(id).Ask(ctx, status, true); err != nil {
			t.Fatalf("tablet %d: its status: %v", id, err)
		}
	}
	commit := onePhaseOf(r.take(1), put("b", "1"))
	if a, err := r.port(2).Ask(ctx, commit, true); err != nil || a.GetError() != nil {
		t.Fatalf("a commit while reads wait: %v, %v", a, err)
	}
	if n := r.waitingReads(); n > reads.MaxJobs {
		t.Errorf("%d jobs of one tablet are in the pool; at most %d", n, reads.MaxJobs)
	}
	release()
	if codes := f.ended(t); codes[pb.Error_CODE_UNSPECIFIED] != f.sent {
		t.Errorf("%d scans ended with %v", f.sent, codes)
	}
	if n := r.port(2).Queued(); n != 0 {
		t.Errorf("%d calls are counted as waiting", n)
	}
}

// TestWaitingReadsEndWithTheTablet: a tablet that stops while reads wait for blocked workers
// answers those not yet taken by a worker; the workers answer the others.
func TestWaitingReadsEndWithTheTablet(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	release := r.occupy()
	defer release()
	f := r.flood(5000)
	r.until(2, "all have come", func(s *pb.StatusResponse) bool {
		return r.waitingReads() > 0
	})
	if err := r.system.Root.StopFuture(r.port(2).PID()).Wait(); err != nil {
		t.Fatal(err)
	}
	for range f.sent - reads.MaxJobs*reads.MaxCalls {
		a := answered(t, "a scan that waits in the tablet", f.answers)
		if code := a.Value.GetError().GetCode(); code != pb.Error_CODE_NOT_LEADER {
			t.Fatalf("answered %v, %v, want NOT_LEADER", a.Value, a.Err)
		}
		f.sent--
	}
	release()
	if codes := f.ended(t); codes[pb.Error_CODE_NOT_LEADER] != f.sent {
		t.Errorf("%d scans ended with %v", f.sent, codes)
	}
}

// fillWorkers keeps all read workers busy and fills tablet 2's queue of jobs.
func (r *rig) fillWorkers() (release func()) {
	r.tb.Helper()
	release = r.occupy()
	for i := 1; i <= reads.MaxJobs; i++ {
		r.start(2, getOf(1, "a"))
		r.until(2, "it waits for a worker", func(*pb.StatusResponse) bool {
			return r.waitingReads() == i
		})
	}
	return release
}

// TestQueuedReadOvertakenBySplit: a queued read is checked again when its row has moved to another
// tablet. Catches BROKEN=queued_across_split.
func TestQueuedReadOvertakenBySplit(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("z", "v")))
	release := r.fillWorkers()
	defer release()
	read := r.start(2, getOf(r.take(1), "z"))
	r.until(2, "the read is under way", func(s *pb.StatusResponse) bool {
		return s.Reads > reads.MaxJobs
	})
	r.do(2, &pb.TabletRequest{
		Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: 16, Row: []byte("m"), NewTabletId: 3},
		},
	})
	r.awaitLeader()
	release()
	if got := answered(t, "the read", read); got.Value.GetError() == nil {
		t.Errorf("READ-ACROSS-SPLIT: a row of another tablet is answered: %v", got.Value)
	}
}

// TestReadOfALostLeader: a read is refused if the replica lost its leadership while the worker
// answered the previous one. Catches BROKEN=read_any_term.
func TestReadOfALostLeader(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	inside := r.restart(2)
	release := r.fillWorkers()
	defer release()
	var term uint64
	answers := make(chan result, 2)
	at := r.take(1)
	for i := range 2 { // of one job
		if err := r.port(2).Tell(getOf(at, "a"), time.Time{}, false, func(a result) {
			if i == 0 {
				term = inside.reads.Term()
				inside.reads.SetTerm(0)
			}
			answers <- a
		}); err != nil {
			t.Fatal(err)
		}
	}
	r.until(2, "the reads are under way", func(s *pb.StatusResponse) bool {
		return s.Reads >= reads.MaxJobs+2
	})
	release()
	first, second := answered(t, "the first", answers), answered(t, "the second", answers)
	inside.reads.SetTerm(term)
	if first.Value.GetError() != nil || second.Value.GetError().GetCode() != pb.Error_CODE_NOT_LEADER {
		t.Errorf("READ-ANY-TERM: the answers are %v and, of a leader that is none, %v", first.Value,
			second.Value)
	}
}

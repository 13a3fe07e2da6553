package tablet

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// TestWaitersAreNotDisturbed: operations waiting for one cell's reservation are not evaluated again
// when other cells are applied. When it ends, all of them are answered.
func TestWaitersAreNotDisturbed(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	hot, asked := r.take(1), make(chan func(), 1)
	first := true
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) {
		if first { // the tablet's goroutine requests it
			first = false
			asked <- func() { then(r.take(n), nil) }
			return
		}
		then(r.take(n), nil)
	}
	r.mu.Unlock()
	holder := r.start(2, onePhaseOf(hot, put("hot", "1")))
	grant := <-asked
	const waiters, others = 16, 40
	var answers []<-chan result
	for range waiters {
		answers = append(answers, r.start(2, onePhaseOf(r.take(1), put("hot", "2"))),
			r.start(2, getOf(r.take(1), "hot")))
	}
	r.until(2, "all wait", func(s *pb.StatusResponse) bool {
		return s.Mutations >= 1+waiters && s.Reads >= waiters
	})
	status := func() *pb.StatusResponse {
		return r.do(2, &pb.TabletRequest{
			Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
		}).GetStatus()
	}
	before := status()
	for i := range others {
		r.do(2, onePhaseOf(r.take(1), put(fmt.Sprint(i), "1")))
	}
	after := status()
	// A read may return from its worker in between, once.
	if m, n := after.Mutations-before.Mutations, after.Reads-before.Reads; m > others ||
		n > waiters {
		t.Errorf("%d waiters and %d operations elsewhere: %d evaluations and %d reads", 2*waiters,
			others, m, n)
	}
	grant()
	await(t, holder)
	for i, a := range answers {
		got := await(t, a)
		if m := got.GetMutation(); i%2 == 0 && m.GetStatus() != pb.Status_STATUS_CONFLICT {
			t.Errorf("a commit begun before the holder's: %v", m)
		}
		if g := got.GetGet(); i%2 == 1 && g.GetResults()[0].GetFound() {
			t.Errorf("a read below the holder's commit: %v", g)
		}
	}
}

// BenchmarkHotCell runs many callers that commit to one cell, in addition to 64 that commit each to
// its own. CPU ns and evaluations are per answer.
func BenchmarkHotCell(b *testing.B) {
	for _, callers := range []int{64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { hotCell(b, callers) })
	}
}

func hotCell(b *testing.B, callers int) {
	r := newRig(b, store.Options{InMemory: true})
	var wait sync.WaitGroup
	var left, committed atomic.Int64
	left.Store(int64(b.N))
	status := func() *pb.StatusResponse {
		return r.do(2, &pb.TabletRequest{
			Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
		}).GetStatus()
	}
	before, cpu := status(), cpuTime()
	b.ResetTimer()
	for i := range callers + 64 {
		row := "hot"
		if i >= callers {
			row = fmt.Sprint(i)
		}
		wait.Go(func() {
			for left.Add(-1) >= 0 {
				read := r.do(2, getOf(0, row)).GetGet()
				if m := r.do(2, onePhaseOf(mvcc.Timestamp(read.At),
					put(row, "x"))).GetMutation(); m.Status == pb.Status_STATUS_OK {
					committed.Add(1)
				}
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	n, after := float64(b.N), status()
	b.ReportMetric(float64(cpuTime()-cpu)/n, "cpu-ns/op")
	b.ReportMetric(float64(after.Mutations-before.Mutations)/n, "evaluations/op")
	b.ReportMetric(float64(after.Reads-before.Reads)/n, "reads/op")
	b.ReportMetric(float64(committed.Load())/n, "commits/op")
}

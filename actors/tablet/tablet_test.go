package tablet

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

func TestOnePhaseThenRead(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.take(10)
	start := r.take(1)
	res := r.do(2, onePhaseOf(start, put("a", "1"))).GetMutation()
	if res.Status != pb.Status_STATUS_OK || res.CommitTs <= uint64(start) {
		t.Fatalf("one-phase commit: %v", res)
	}
	got := r.do(2, getOf(r.take(1), "a", "b")).GetGet().Results
	if string(got[0].Value) != "1" || got[0].CommitTs != res.CommitTs || got[1].Found {
		t.Fatalf("read %v, want a of 1 at the commit, and no b", got)
	}
	again := r.do(2, onePhaseOf(start, put("a", "1"))).GetMutation()
	if again.Status != pb.Status_STATUS_COMMITTED || again.CommitTs != res.CommitTs {
		t.Fatalf("a late copy got %v", again)
	}
	if late := r.do(2, onePhaseOf(start-1,
		put("a", "0"))).GetMutation(); late.Status != pb.Status_STATUS_CONFLICT {
		t.Fatalf("an older transaction got %v", late)
	}
}

func TestSplitKeepsDataAndLocks(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	for i := range 20 {
		r.do(2, onePhaseOf(r.take(1), put(fmt.Sprintf("r%02d", i), "v")))
	}
	start := r.take(1)
	prewrite := &pb.PrewriteRequest{
		StartTs: uint64(start), Primary: cellOf("r03"), Expiry: uint64(mvcc.MaxTimestamp - 1),
		Worker: &pb.Worker{},
		Writes: append(put("r03", "w"), put("r15", "w")...),
	}
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: prewrite}})
	split := &pb.TabletRequest{
		Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: 16, Row: []byte("r10"), NewTabletId: 3},
		},
	}
	answer := r.do(2, split).GetSplit()
	if answer.Left.Epoch != 2 || string(answer.Right.StartRow) != "r10" {
		t.Fatalf("the split is answered %v, want epoch 2, and r10 on the right", answer)
	}
	if d := r.awaitLeader(); d.TabletId != 3 {
		t.Fatalf("tablet %d leads", d.TabletId)
	}
	if e := r.try(2, getOf(r.take(1), "r15")).GetError(); e.GetCode() != pb.Error_CODE_WRONG_TABLET || len(e.Descriptors) != 2 {
		t.Fatalf("left tablet answered for a row of the right one: %v", e)
	}
	at := r.take(1)
	if got := r.do(3, getOf(at, "r15")).GetGet().Results[0]; got.Status != pb.Status_STATUS_LOCKED || got.Lock.Lock.StartTs != uint64(start) {
		t.Fatalf("the split lost a lock: %v", got)
	}
	if got := r.do(3, getOf(at, "r11")).GetGet().Results[0]; string(got.Value) != "v" {
		t.Fatalf("right tablet: %v", got)
	}
	if got := r.do(2, getOf(at, "r03")).GetGet().Results[0]; got.Status != pb.Status_STATUS_LOCKED {
		t.Fatalf("left tablet: %v", got)
	}
}

func TestConcurrentOnePhaseOnOneCell(t *testing.T) {
	for _, near := range []bool{false, true} {
		t.Run(fmt.Sprintf("near=%v", near), func(t *testing.T) {
			r := newRig(t, store.Options{InMemory: true})
			r.near.Store(near)
			concurrentOnePhaseOnOneCell(t, r)
		})
	}
}

func concurrentOnePhaseOnOneCell(t *testing.T, r *rig) {
	var committed sync.Map
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				start := r.take(1)
				res := r.do(2, onePhaseOf(start, put("hot", "x"))).GetMutation()
				switch res.Status {
				case pb.Status_STATUS_OK:
					if other, dup := committed.LoadOrStore(res.CommitTs, start); dup {
						t.Errorf("commit timestamp %d given to %v and %v", res.CommitTs, other,
							start)
					}
				case pb.Status_STATUS_CONFLICT:
				default:
					t.Errorf("status %v", res.Status)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkOnePhase(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			r := newRig(b, store.Options{Dir: b.TempDir()})
			var wg sync.WaitGroup
			b.ResetTimer()
			cpu := cpuTime()
			for c := range callers {
				wg.Go(func() {
					for i := c; i < b.N; i += callers {
						r.do(2, onePhaseOf(r.take(1),
							put(fmt.Sprintf("%d-%d", c, i), "0123456789abcdef")))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
			b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

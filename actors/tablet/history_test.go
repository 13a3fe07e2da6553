package tablet

import (
	"os"
	"strconv"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

func collectOf(r *pb.CollectRequest) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Collect{Collect: r}}
}

// raise raises bound and safepoint to ts, with the confirmation in between.
func (r *rig) raise(tablet uint64, ts mvcc.Timestamp) {
	r.tb.Helper()
	r.do(tablet, collectOf(&pb.CollectRequest{Bound: uint64(ts)}))
	for !r.do(tablet, collectOf(&pb.CollectRequest{Confirm: uint64(ts)})).GetCollect().Confirmed {
	}
	r.do(tablet, collectOf(&pb.CollectRequest{Safepoint: uint64(ts)}))
}

func (r *rig) status(tablet uint64) *pb.StatusResponse {
	r.tb.Helper()
	return r.do(tablet, &pb.TabletRequest{
		Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
	}).GetStatus()
}

// TestHistorySpace overwrites 1 MiB many times, in one cell and in a few, with a bounded history,
// and checks the directory's maximum size. It writes tens of gigabytes: HISTORY=10000 sets the
// number of overwrites; make history.
func TestHistorySpace(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("HISTORY"))
	if err != nil {
		t.Skip("HISTORY is not set: make history")
	}
	// 300 MiB are live at a time: docs/adr/0005 explains the resulting limit of 1 GiB or slightly
	// more.
	const history, perSecond, limit = 10 * time.Second, 30, 1280 << 20
	r := newRig(t, store.Options{Dir: t.TempDir()})
	r.now.Store(uint64(mvcc.TimestampAt(time.Now().UnixMilli())))
	value := make([]byte, 1<<20)
	var most uint64
	begin, last := time.Now(), time.Now()
	pace := time.NewTicker(time.Second / perSecond)
	defer pace.Stop()
	for i := range count {
		<-pace.C
		for j := range value {
			value[j] = byte(i + j*j)
		}
		r.now.Store(max(r.now.Load(), uint64(mvcc.TimestampAt(time.Now().UnixMilli()))))
		res := r.do(2, onePhaseOf(r.take(1),
			put("row"+strconv.Itoa(i%4), string(value)))).GetMutation()
		if res.Status != pb.Status_STATUS_OK {
			t.Fatal(res)
		}
		if time.Since(last) < time.Second {
			continue
		}
		last = time.Now()
		if at := last.Add(-history); at.After(begin) {
			r.raise(2, mvcc.TimestampAt(at.UnixMilli()))
		}
		n := r.store.Stats().DiskBytes
		most = max(most, n)
		s := r.status(2)
		t.Logf("%5.0f s: %5d values, %5d MiB on disk, %d collected, %d wait, log %d to %d",
			time.Since(begin).Seconds(), i+1, n>>20,
			s.Collected, s.Garbage, s.FirstIndex, s.LastIndex)
	}
	t.Logf("%d values of 1 MiB in %v: at most %d MiB on disk", count,
		time.Since(begin).Round(time.Second), most>>20)
	r.raise(2, r.take(1))
	for r.status(2).Garbage > 0 {
	}
	if err := r.store.Compact(); err != nil {
		t.Fatal(err)
	}
	if left := r.store.Stats().DiskBytes; left > 64<<20 {
		t.Errorf("%d bytes are left of 4 MiB", left)
	}
	t.Logf("after collection and a compaction: %d MiB; keys %v", r.store.Stats().DiskBytes>>20,
		r.store.RawKeys())
	if most > limit {
		t.Errorf("the directory took up to %d bytes, limit %d", most, int64(limit))
	}
}

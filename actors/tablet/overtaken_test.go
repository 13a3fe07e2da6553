package tablet

import (
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/actors/tablet/history"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// TestReadOvertakenBySafepoint: a read waits for a worker while the safepoint passes it and its
// history is collected; it is refused, not answered from the remainder. Catches BROKEN=stale_bound.
func TestReadOvertakenBySafepoint(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.raise(2, r.take(1))
	r.quiet(2) // from here on a pass needs no read worker
	r.do(2, onePhaseOf(r.take(1), put("a", "old")))
	at := r.take(1)
	r.do(2, onePhaseOf(r.take(1), put("a", "new")))
	r.do(2, getOf(r.take(1), "a")) // once it is answered, reads wait for a worker alone
	gate := make(chan struct{})
	for range 2 {
		submitRead(r.readers, func() { <-gate })
	}
	read := r.start(2, getOf(at, "a"))
	r.until(2, "the read waits for a worker", func(*pb.StatusResponse) bool {
		return r.waitingReads() > 0
	})
	safepoint := uint64(r.take(1))
	r.do(2, collectOf(&pb.CollectRequest{Bound: safepoint}))
	r.do(2, collectOf(&pb.CollectRequest{Safepoint: safepoint}))
	r.until(2, "the old value is collected", func(s *pb.StatusResponse) bool {
		return s.Collected > 0
	})
	close(gate)
	if got := await(t, read).GetGet().Results[0]; got.Status != pb.Status_STATUS_TOO_OLD {
		t.Errorf("STALE-BOUND: a read at %d, safepoint %d, is answered: %v", at, safepoint, got)
	}
}

// TestReadOvertakenBySplit: a read waits for a worker while its row moves to another tablet, which
// then collects the history that the read needs; it is refused. Catches BROKEN=read_across_split.
func TestReadOvertakenBySplit(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("z", "old")))
	at := r.take(1)
	r.do(2, onePhaseOf(r.take(1), put("z", "new")))
	release := r.occupy()
	defer release()
	read := r.start(2, getOf(at, "z"))
	r.until(2, "the read waits for a worker", func(*pb.StatusResponse) bool {
		return r.waitingReads() > 0
	})
	r.do(2, &pb.TabletRequest{
		Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: 16, Row: []byte("m"), NewTabletId: 3},
		},
	})
	r.awaitLeader()
	r.raise(3, r.take(1))
	r.until(3, "the old value is collected", func(s *pb.StatusResponse) bool {
		return s.Collected > 0
	})
	release()
	got := <-read
	if got.Err != nil || got.Value.GetError().GetCode() != pb.Error_CODE_NOT_PROPOSED {
		t.Errorf("READ-ACROSS-SPLIT: a read at %d of a row of another tablet is answered: %v, %v",
			at, got.Value, got.Err)
	}
}

// TestManyGarbageCells: more cells with garbage than a leader remembers are still collected.
func TestManyGarbageCells(t *testing.T) {
	if testing.Short() {
		t.Skip("writes ten thousand rows")
	}
	r := newRig(t, store.Options{InMemory: true})
	r.now.Store(uint64(mvcc.TimestampAt(1e9)))
	r.raise(2, r.take(1))
	r.quiet(2)
	const rows, batch = history.MaxRemembered + 2000, 500
	for range 3 {
		for i := 0; i < rows; i += batch {
			var writes []*pb.CellWrite
			for j := range batch {
				writes = append(writes, put(fmt.Sprintf("r%05d", i+j), "v")...)
			}
			r.do(2, onePhaseOf(r.take(1), writes))
		}
	}
	r.now.Add(uint64(mvcc.TimestampAt(2000))) // past the buckets of the count
	r.raise(2, r.take(1))
	r.until(2, "all is collected", func(s *pb.StatusResponse) bool { return s.Garbage == 0 })
	if groups := r.rowsOf(); groups[mvcc.GroupHistory] != 0 {
		t.Errorf("left are %v, want none in H", groups)
	}
}

// TestForgottenGarbageIsFound: cells that did not fit into memory are collected even after the
// deletion of other cells, each of which had many entries, has reduced the counted garbage to zero.
func TestForgottenGarbageIsFound(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.now.Store(uint64(mvcc.TimestampAt(1e9)))
	low := r.take(1)
	const hot, versions, long = 20, 60, 600
	write := func(rows int, name string) {
		for done := 0; done < rows; done += 100 {
			var writes []*pb.CellWrite
			for i := range min(100, rows-done) {
				writes = append(writes, put(fmt.Sprintf(name, done+i), "v")...)
			}
			r.do(2, onePhaseOf(r.take(1), writes))
		}
	}
	for range versions {
		write(hot, "hot%03d")
	}
	r.restart(2)
	r.raise(2, low) // the survey finds the hot cells and remembers one entry of each
	r.until(2, "the survey is over", func(s *pb.StatusResponse) bool { return s.Garbage == hot })
	for range 2 {
		write(long, "long%0996d") // more bytes than are remembered
	}
	r.now.Add(uint64(mvcc.TimestampAt(2000)))
	r.raise(2, r.take(1))
	r.until(2, "what is remembered is collected", func(s *pb.StatusResponse) bool {
		return s.Collected > hot*(versions-1)
	})
	r.now.Add(uint64(mvcc.TimestampAt(5 * history.LongestRest.Milliseconds())))
	r.raise(2, r.take(1))
	r.quiet(2)
	if groups := r.rowsOf(); groups[mvcc.GroupHistory] != 0 {
		t.Errorf("left are %v, want none in H", groups)
	}
}

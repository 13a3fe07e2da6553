package tablet

import (
	"errors"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// asking holds every request for timestamps until the test grants it.
func (r *rig) asking() <-chan func(error) {
	asked := make(chan func(error), 16)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) {
		asked <- func(err error) {
			if err != nil {
				then(0, err)
				return
			}
			then(r.take(n), nil)
		}
	}
	return asked
}

// TestFirstReadAsksBeforeItReads: a transaction that commits after a first read has requested its
// timestamp, and before the grant, has a lower timestamp, so the read sees it. Catches
// BROKEN=late_start.
func TestFirstReadAsksBeforeItReads(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	read := r.start(2, getOf(0, "a"))
	grant := <-asked
	start := r.take(1)
	r.do(2, prewriteOf(start, "a", "new"))
	commit := r.take(1)
	r.do(2, commitOf(start, commit, "a"))
	grant(nil)
	got := await(t, read).GetGet()
	if got.At <= uint64(commit) {
		t.Fatalf("the read is at %d; it must be above %d", got.At, commit)
	}
	if string(got.Results[0].Value) != "new" {
		t.Errorf("LATE-START: a read at %d has not seen the commit at %d: %v", got.At, commit,
			got.Results[0])
	}
}

// TestFirstReadsHaveTheirOwnTimestamps: a timestamp identifies a transaction, so no two first reads
// share one, even if they shared the request; a read that brings its timestamp keeps it.
func TestFirstReadsHaveTheirOwnTimestamps(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	reads := []<-chan result{r.start(2, getOf(0, "a"))}
	grant := <-asked
	for range 20 { // share the next request
		reads = append(reads, r.start(2, getOf(0, "a", "b")))
	}
	r.until(2, "all have arrived", func(*pb.StatusResponse) bool {
		return r.port(2).Queued() >= len(reads)
	})
	grant(nil)
	seen := map[uint64]bool{}
	for i, read := range reads {
		if i == 1 {
			(<-asked)(nil)
		}
		at := await(t, read).GetGet().At
		if at == 0 || seen[at] {
			t.Errorf("read %d: timestamp %d again", i, at)
		}
		seen[at] = true
	}
	select {
	case <-asked:
		t.Error("reads that came together asked more than once")
	default:
	}
	if got := await(t, r.start(2, getOf(r.take(1), "a"))).GetGet(); got.At != 0 {
		t.Errorf("a read that brought its timestamp was given %d", got.At)
	}
}

// TestFirstReadKeepsItsTimestamp: a first read that encounters a reservation is retried at its own
// timestamp; otherwise the commits of a busy cell could delay it forever.
func TestFirstReadKeepsItsTimestamp(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	commit := r.start(2, onePhaseOf(r.take(1), put("a", "1")))
	grantCommit := <-asked
	read := r.start(2, getOf(0, "a"))
	grantRead := <-asked
	grantRead(nil)
	at := r.now.Load()
	r.until(2, "the read has met the reservation", func(s *pb.StatusResponse) bool {
		return s.Reads >= 1
	})
	grantCommit(nil)
	if got := await(t, commit).GetMutation(); got.Status != pb.Status_STATUS_OK {
		t.Fatalf("one-phase commit: %v", got)
	}
	got := await(t, read).GetGet()
	if got.At != at || got.Results[0].Status != pb.Status_STATUS_OK || got.Results[0].Found {
		t.Errorf("at %d, want %d, below the commit: %v", got.At, at, got.Results[0])
	}
}

// TestFirstReadWithoutOracle: a first read that gets no timestamp is answered with NOT_PROPOSED,
// and later operations are not blocked.
func TestFirstReadWithoutOracle(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	first := r.start(2, getOf(0, "a"))
	grant := <-asked
	second := r.start(2, getOf(0, "a"))
	r.until(2, "both have arrived", func(*pb.StatusResponse) bool {
		return r.port(2).Queued() >= 2
	})
	grant(errors.New("no oracle"))
	if a := <-first; a.Value.GetError().GetCode() != pb.Error_CODE_NOT_PROPOSED {
		t.Errorf("the read is answered %v, %v, want NOT_PROPOSED", a.Value, a.Err)
	}
	(<-asked)(nil)
	await(t, second)
}

// TestFirstReadsAnsweredAtStop: first reads that wait for the oracle when the tablet stops are
// answered, and those behind them.
func TestFirstReadsAnsweredAtStop(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	first := r.start(2, getOf(0, "a"))
	grant := <-asked
	second := r.start(2, getOf(0, "a"))
	r.until(2, "both have arrived", func(*pb.StatusResponse) bool {
		return r.port(2).Queued() >= 2
	})
	_ = r.system.Root.StopFuture(r.port(2).PID()).Wait()
	grant(nil)
	for _, read := range []<-chan result{first, second} {
		if a := <-read; a.Err == nil && a.Value.GetError() == nil {
			t.Errorf("a read is answered %v, want an error", a.Value)
		}
	}
}

// TestFirstReadOvertakenBySplit: a first read whose row moves to another tablet during the request
// for a timestamp is refused. Catches BROKEN=first_read_across_split.
func TestFirstReadOvertakenBySplit(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("z", "v")))
	asked := r.asking()
	read := r.start(2, getOf(0, "z"))
	grant := <-asked
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Split{
		Split: &pb.SplitRequest{Table: 16, Row: []byte("m"), NewTabletId: 3},
	}})
	r.awaitLeader()
	grant(nil)
	if got := answered(t, "the read", read); got.Value.GetError() == nil {
		t.Errorf("READ-ACROSS-SPLIT: a row of another tablet is answered: %v", got.Value)
	}
}

package tablet

import (
	"fmt"
	"testing"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

func changesOf(since mvcc.Timestamp, wait time.Duration) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Changes{Changes: &pb.ChangesRequest{
		Span: &pb.Span{Table: 16}, Since: uint64(since), WaitMs: uint32(wait.Milliseconds()),
	}}}
}

// put commits a row in one phase and returns the commit timestamp.
func (r *rig) put(row, value string) mvcc.Timestamp {
	r.tb.Helper()
	resp := r.do(2, onePhaseOf(r.take(1), put(row, value)))
	if s := resp.GetMutation().GetStatus(); s != pb.Status_STATUS_OK {
		r.tb.Fatal(s)
	}
	return mvcc.Timestamp(resp.GetMutation().CommitTs)
}

// recording asks until the tablet's record is complete from a timestamp on, and returns it.
func (r *rig) recording(since mvcc.Timestamp) mvcc.Timestamp {
	r.tb.Helper()
	for range 1000 {
		if from := r.do(2, changesOf(since, 0)).GetChanges().CompleteFrom; from != 0 {
			return mvcc.Timestamp(from)
		}
	}
	r.tb.Fatal("the tablet does not record")
	return 0
}

// TestRecordBegins: a leader's record is complete only above the timestamp that it requested
// when it began. What was committed before is not there, and the answer says so.
func TestRecordBegins(t *testing.T) {
	for _, near := range []bool{false, true} {
		r := newRig(t, store.Options{InMemory: true})
		r.near.Store(near)
		before := r.take(1)
		first := r.put("a", "1")
		from := r.recording(before)
		second := r.put("b", "2")
		got := r.do(2, changesOf(before, 0)).GetChanges()
		if from < first || mvcc.Timestamp(got.CompleteFrom) != from || len(got.Changes) > 0 {
			t.Errorf("RECORD-INCOMPLETE: complete from %d, after a commit at %d: %v", from, first, got)
		}
		got = r.do(2, changesOf(from, 0)).GetChanges()
		if len(got.Changes) != 1 || mvcc.Timestamp(got.Changes[0].CommitTs) != second ||
			mvcc.Timestamp(got.Resolved) < second {
			t.Errorf("after %d: %v, want the commit at %d", from, got, second)
		}
	}
}

// TestChangesWait: a request that finds no change waits for one, at most for the time that it
// names.
func TestChangesWait(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	from := r.recording(r.take(1))
	began := time.Now()
	got := r.do(2, changesOf(from, 50*time.Millisecond)).GetChanges()
	if len(got.Changes) != 0 || mvcc.Timestamp(got.Resolved) <= from || time.Since(began) < 50*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(began), got)
	}
	answer := make(chan *pb.ChangesResponse, 1)
	go func() { answer <- r.do(2, changesOf(from, time.Second)).GetChanges() }()
	at := r.put("a", "1")
	if got := <-answer; len(got.Changes) != 1 || mvcc.Timestamp(got.Resolved) < at {
		t.Errorf("after a change: %v", got)
	}
}

// TestRecordIsBounded: a tablet beyond its node's budget keeps its newest changes, and says from
// where on they are complete.
func TestRecordIsBounded(t *testing.T) {
	budget := &memory.RecordBudget{Max: 4 << 10}
	m := memory.New(memory.Config{Recorded: budget})
	record, begun := m.Record()
	if !begun || !record.Incomplete() {
		t.Fatal("a record from before it has begun")
	}
	m.Complete(record, 1)
	for ts := mvcc.Timestamp(2); ts < 200; ts++ {
		m.Visible(uint64(ts), []mvcc.Mutation{{
			Group: mvcc.GroupWrite, Cell: mvcc.Cell{Table: 16, Row: fmt.Sprint(ts), Column: "c"},
			Write: &mvcc.Write{CommitTS: ts ^ 1, StartTS: ts - 1, Kind: mvcc.KindPut},
		}}, nil)
	}
	if record.Idle(1) || record.Idle(100) || !record.Idle(199) {
		t.Error("the record does not know what it has")
	}
	view := m.Capture(&pb.TabletDescriptor{})
	if err := m.Add(&view, changesOf(1, 0)); err != nil {
		t.Fatal(err)
	}
	_, from := view.Recorded(1)
	kept, _ := view.Recorded(from)
	if n := int(199 - from); len(kept) < n || n < 5 || n > 40 {
		t.Errorf("%d changes are kept, complete from %d", len(kept), from)
	}
	m.Clear()
	if again, begun := m.Record(); !begun || again == record {
		t.Error("the record outlives the leadership")
	}
}

// TestLockHoldsChangesFromItsPrewrite: a lock of a transaction that began long ago holds the
// resolved timestamp where it was when the prewrite arrived, and goes on doing so after a heartbeat.
func TestLockHoldsChangesFromItsPrewrite(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	start := r.take(1)
	from := r.recording(start)
	known := mvcc.Timestamp(r.do(2, changesOf(from, 0)).GetChanges().Resolved)
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
		StartTs: uint64(start), Primary: cellOf("a"), Expiry: 1 << 60, Writes: put("a", "1"),
	}}})
	commit := r.take(1) // which the client has now
	for _, extend := range []bool{false, true} {
		if extend {
			r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{
				StartTs: uint64(start), Primary: cellOf("a"), Expiry: 1<<60 + 1,
			}}})
		}
		got := r.do(2, changesOf(from, 0)).GetChanges()
		if at := mvcc.Timestamp(got.Resolved); at < known || at >= commit || len(got.Locks) != 1 {
			t.Errorf("LOCK-MOVED: after a heartbeat (%t) resolved is %d, want at least %d and below %d: %v",
				extend, at, known, commit, got.Locks)
		}
	}
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
		StartTs: uint64(start), CommitTs: uint64(commit), Cells: []*pb.Cell{cellOf("a")},
	}}})
	got := r.do(2, changesOf(from, 0)).GetChanges()
	if len(got.Changes) != 1 || mvcc.Timestamp(got.Changes[0].CommitTs) != commit {
		t.Errorf("after the commit at %d: %v", commit, got)
	}
}

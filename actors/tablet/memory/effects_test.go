package memory

import (
	"math/rand/v2"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// TestWrittenOrigins: writes after a mark are distinguished from writes before it, and forgotten
// ones count as written after.
func TestWrittenOrigins(t *testing.T) {
	type write struct {
		at     int // index of the mark taken before it
		origin mvcc.Timestamp
	}
	r := rand.New(rand.NewPCG(1, 2))
	var w writtenOrigins
	w.note(1) // no mark has been taken
	marks := []uint64{w.now()}
	var writes []write
	for range 3 * maxParts {
		for range r.IntN(3) {
			origin := mvcc.Timestamp(1 + r.IntN(1000))
			w.note(origin)
			writes = append(writes, write{len(marks), origin})
		}
		marks = append(marks, w.now())
		i, until := r.IntN(len(marks)), mvcc.Timestamp(r.IntN(1000))
		want := false
		for _, wr := range writes {
			want = want || (wr.at > i && wr.origin <= until)
		}
		got := w.since(marks[i], until)
		if want && !got {
			t.Fatalf("written since mark %d of %d up to %d, and not known", i, len(marks), until)
		}
		if got && !want && len(marks)-i < maxParts/2 {
			t.Fatalf("nothing was written since mark %d of %d up to %d", i, len(marks), until)
		}
	}
	if !w.since(0, 1) || !w.since(w.mark+1, 1) || !w.since(1, 1) {
		t.Error("marks that are none, or are forgotten, report that nothing was written")
	}
}

// TestOldMarksAreForgotten: an entry written after a mark older than all known ones counts as
// written, whatever has replaced it since.
func TestOldMarksAreForgotten(t *testing.T) {
	var w writtenOrigins
	mark := w.now()
	w.note(5)
	for range maxParts {
		w.now()
		w.note(100)
	}
	if !w.since(mark, 10) {
		t.Error("WORK-MISSED: what was written after a mark that is forgotten")
	}
}

// TestHiddenUnlessKnown: whether a snapshot shows a run's writes is known for timestamps from the
// first one granted to this leader on, and for none at or above that of a commit under way which
// notifies.
func TestHiddenUnlessKnown(t *testing.T) {
	m := New(Config{})
	hidden := func(at mvcc.Timestamp) bool {
		return m.effectsOf(&pb.EffectsRequest{Until: uint64(at), Shown: true}).hidden
	}
	if !hidden(10) {
		t.Error("HIDDEN: a leader without a timestamp knows of runs")
	}
	m.Took(10)
	if !hidden(9) || hidden(10) {
		t.Error("HIDDEN: from 10 on this leader knows of all runs, and of none before")
	}
	for commit, want := range map[mvcc.Timestamp]bool{0: true, 12: true, 13: false} {
		m.Notifying = []mvcc.Timestamp{commit}
		if got := hidden(12); got != want {
			t.Errorf("HIDDEN: a commit at %d (0: not known) is under way, at 12: %v", commit, got)
		}
	}
}

// TestEndedRuns: a run under way at a timestamp is found, or forgotten and then still counted.
func TestEndedRuns(t *testing.T) {
	var e endedRuns
	e.add(mvcc.EndedRun{Table: 16, Origin: 10, End: 20})
	for at, want := range map[mvcc.Timestamp]bool{9: false, 10: true, 19: true, 20: false} {
		if got := e.after(at, nil); got != want {
			t.Errorf("at %d: %v", at, got)
		}
	}
	if e.after(15, []uint32{17}) || !e.after(15, []uint32{16, 17}) {
		t.Error("tables are mistaken for each other")
	}
	for i := range mvcc.Timestamp(maxEnded) {
		e.add(mvcc.EndedRun{Table: 16, Origin: 100 + i, End: 100 + i})
	}
	if !e.after(15, nil) || !e.after(15, []uint32{17}) || e.after(50, nil) {
		t.Error("what is forgotten does not count")
	}
}

// TestBatchIsOneRun: a run of many cells takes one place among the known runs, with the oldest of
// its changes.
func TestBatchIsOneRun(t *testing.T) {
	var e endedRuns
	e.add(mvcc.EndedRun{Table: 16, Origin: 10, End: 20})
	for i := range mvcc.Timestamp(2 * maxEnded) {
		e.add(mvcc.EndedRun{Table: 16, Origin: 200 - i, End: 300})
	}
	if e.after(5, nil) || e.after(25, nil) {
		t.Error("one batch makes the runs before it forgotten")
	}
	if least := mvcc.Timestamp(200 - 2*maxEnded + 1); !e.after(least, nil) || e.after(least-1, nil) {
		t.Error("the batch does not go back to the oldest of its changes")
	}
}

// TestBoundsEndWithTheLeadership: one leadership's knowledge of rollback records does not apply to
// the next: another leader may have written some in between. Catches BROKEN=bounds_kept.
func TestBoundsEndWithTheLeadership(t *testing.T) {
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	m := New(Config{Store: st})
	for term := range uint64(2) {
		if err := m.Lead(&pb.TabletDescriptor{TabletId: 2, EndUnbounded: true}, 1+term); err != nil {
			t.Fatal(err)
		}
		if m.rollbacks.none(50) || m.KnowsRuns() {
			t.Errorf("BOUNDS-KEPT: leader %d knows that nothing was rolled back at 50", 1+term)
		}
		m.Took(10)
		if !m.rollbacks.none(50) {
			t.Errorf("leader %d does not know what it was given", 1+term)
		}
	}
}

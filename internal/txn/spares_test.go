package txn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/internal/wire"
)

// messages counts the process's requests to the oracle, and keeps its one-phase commits and the
// number of its other operations.
type messages struct {
	questions, others atomic.Int64
	mu                sync.Mutex
	commits           []*pb.OnePhaseRequest
}

// watch begins to record the messages of the process. fault, if not nil, returns the fault of the
// n-th commit, counted from 1.
func (w *world) watch(c *txn.Client, p *txntest.Process, fault func(n int) txntest.Fault) *messages {
	c.Flush()
	m := &messages{}
	p.Oracle(func(n int) (mvcc.Timestamp, int, error) {
		m.questions.Add(1)
		return w.Timestamps(n), n, nil
	})
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		one := req.GetOnePhase()
		if one == nil {
			m.others.Add(1)
			return txntest.Fault{}
		}
		m.mu.Lock()
		m.commits = append(m.commits, one)
		n := len(m.commits)
		m.mu.Unlock()
		if fault == nil {
			return txntest.Fault{}
		}
		return fault(n)
	})
	return m
}

// starts returns the start timestamps of the commits in the order in which they were sent.
func (m *messages) starts() (starts []mvcc.Timestamp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.commits {
		starts = append(starts, mvcc.Timestamp(one.StartTs))
	}
	return starts
}

// TestBlindWriteIsOneMessage: after the first one, a transaction that only writes to one tablet is
// one message and no request to the oracle, also if it overwrites what the one before has written.
func TestBlindWriteIsOneMessage(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "0", "a")
	m := w.watch(c, p, nil)
	last := mvcc.Timestamp(0)
	for _, value := range []string{"1", "2", "3"} {
		commit := w.set(c, value, "a")
		if commit <= last {
			t.Errorf("committed at %d after %d", commit, last)
		}
		last = commit
	}
	starts := m.starts()
	if m.questions.Load() != 0 || m.others.Load() != 0 || len(starts) != 3 {
		t.Errorf("%d requests to the oracle, commits at %d, %d other messages; want 3 commits only",
			m.questions.Load(), starts, m.others.Load())
	}
	if got := w.get(c, "a"); got != "3" {
		t.Errorf("%s, want 3", got)
	}
}

// TestReadThenWriteIsTwoMessages: a transaction that reads a cell and writes it is a read and a
// commit. Its start timestamp is that of its snapshot, whatever spare ones there are.
func TestReadThenWriteIsTwoMessages(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "0", "a")
	m := w.watch(c, p, nil)
	var start mvcc.Timestamp
	if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		tx.Set(key("a"), []byte(w.read(tx, "a")+"1"))
		start = tx.StartTS()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	starts := m.starts()
	if m.questions.Load() != 0 || m.others.Load() != 1 || len(starts) != 1 || starts[0] != start {
		t.Errorf("%d requests to the oracle, %d reads, commits at %d; want 0, 1 and one at %d",
			m.questions.Load(), m.others.Load(), starts, start)
	}
	if m.commits[0].Spare {
		t.Error("a commit after a read requested a timestamp that it cannot use")
	}
}

// TestSpareIsNoSnapshot: a spare timestamp is older than commits of other processes, so that no
// transaction reads at it. Catches BROKEN=spare_snapshot.
func TestSpareIsNoSnapshot(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	other, _ := w.client(txn.Config{})
	w.set(c, "0", "a") // leaves a spare timestamp
	commit := w.set(other, "1", "a", "h")
	if _, err := c.Run(w.ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
		at, err := tx.Start(ctx)
		if err != nil {
			return err
		}
		if got := w.read(tx, "a"); got != "1" || at <= commit {
			t.Errorf("SPARE-SNAPSHOT: a transaction at %d reads %s, after the commit of 1 at %d", at, got, commit)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSpareConflicts: a transaction that only writes does not fail because of a commit before its
// beginning. It is sent again with a new timestamp, without another run of its function, and the
// next commits request theirs from the oracle.
func TestSpareConflicts(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	other, _ := w.client(txn.Config{})
	w.set(c, "0", "a")
	commit := w.set(other, "1", "a")
	m := w.watch(c, p, nil)
	runs, err := w.attempt(c, "2", []string{"a"})
	if err != nil || runs != 1 {
		t.Fatalf("%d runs, %v; want 1 and no error", runs, err)
	}
	if starts := m.starts(); len(starts) != 2 || starts[0] >= commit || starts[1] <= commit {
		t.Errorf("commits at %d beside that of another process at %d", starts, commit)
	}
	if got := w.get(other, "a"); got != "2" {
		t.Errorf("%s, want 2", got)
	}
	if s := c.Stats(); s.Conflicts != 0 || s.Retries != 0 {
		t.Errorf("%d conflicts, %d retries", s.Conflicts, s.Retries)
	}
	before := m.questions.Load()
	w.set(c, "3", "b")
	if m.questions.Load() != before+1 {
		t.Error("the commit after a conflict used a spare timestamp")
	}
}

// TestBlindWriteInTwoTablets: a transaction that only writes, in several tablets, starts at a spare
// timestamp in all of them, and its last tablet returns the next one.
func TestBlindWriteInTwoTablets(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "0", "a")
	m := w.watch(c, p, nil)
	for _, value := range []string{"1", "2"} {
		w.set(c, value, "a", "b", "z")
		c.Flush() // the lock on z is gone
	}
	if starts := m.starts(); m.questions.Load() != 0 || len(starts) != 2 || starts[0] == starts[1] {
		t.Errorf("%d requests to the oracle, commits at %d", m.questions.Load(), starts)
	}
	if a, z := w.get(c, "a"), w.get(c, "z"); a != "2" || z != "2" {
		t.Errorf("a %s, z %s, want 2", a, z)
	}
}

// TestSpareConflictsInTwoTablets: a conflict at a spare timestamp, in the tablet that is locked or
// in the last one, ends that attempt, and the next one commits at a new timestamp without another
// run of the function.
func TestSpareConflictsInTwoTablets(t *testing.T) {
	for _, changed := range []string{"a", "z"} {
		w := newWorld(t)
		c, p := w.client(txn.Config{})
		other, _ := w.client(txn.Config{})
		w.set(c, "0", "a")
		commit := w.set(other, "1", changed)
		m := w.watch(c, p, nil)
		runs, err := w.attempt(c, "2", []string{"a", "b", "z"})
		if err != nil || runs != 1 || m.questions.Load() == 0 {
			t.Fatalf("%s: %d runs, %d requests to the oracle, %v", changed, runs, m.questions.Load(), err)
		}
		starts := m.starts()
		if last := starts[len(starts)-1]; last <= commit {
			t.Errorf("%s: committed from %d on, beside a commit at %d", changed, last, commit)
		}
		c.Flush()
		if n := w.Locks(w.table); n != 0 {
			t.Errorf("%s: %d locks are left", changed, n)
		}
		for _, row := range []string{"a", "b", "z"} {
			if got := w.get(other, row); got != "2" {
				t.Errorf("%s: %s is %s", changed, row, got)
			}
		}
	}
}

// TestSpareBelowTheBound: a start timestamp below the bound of history is replaced, not reported.
func TestSpareBelowTheBound(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "0", "a")
	bound := w.Timestamps(1)
	w.SetBound(bound)
	m := w.watch(c, p, nil)
	w.set(c, "1", "a")
	if starts := m.starts(); len(starts) != 2 || starts[1] < bound {
		t.Errorf("commits at %d, the bound is %d", starts, bound)
	}
}

// TestBlindWriteAfterLostReply: a commit at a spare timestamp whose reply is lost is settled by its
// own start timestamp; it is never sent with another one, which would apply it twice. Catches
// BROKEN=spare_resent.
func TestBlindWriteAfterLostReply(t *testing.T) {
	for name, fault := range map[string]txntest.Fault{
		"executed": {Reply: true}, "not executed": {Lost: true},
	} {
		w := newWorld(t)
		c, p := w.client(txn.Config{})
		other, _ := w.client(txn.Config{})
		w.set(c, "0", "a")
		m := w.watch(c, p, func(n int) txntest.Fault {
			if n > 1 {
				return txntest.Fault{}
			}
			f := fault
			// Another process changes the cell before the first one hears of its own commit.
			f.After = func() { w.set(other, "2", "a") }
			return f
		})
		runs, err := w.attempt(c, "1", []string{"a"})
		if err != nil {
			t.Fatal(name, err)
		}
		starts := m.starts()
		switch {
		case name == "executed" && (runs != 1 || len(starts) != 1):
			t.Errorf("SPARE-RESENT: %s: %d runs, commits at %d", name, runs, starts)
		case name == "not executed" && runs != 2: // rolled back, and run again
			t.Errorf("SPARE-RESENT: %s: %d runs, commits at %d", name, runs, starts)
		}
		if name == "executed" && w.get(other, "a") != "2" {
			t.Errorf("SPARE-RESENT: %s: a later commit of another process is lost", name)
		}
	}
}

// TestSettledAtTheLastStart: a commit that was refused at a spare timestamp and sent again with
// another one is settled by the latter if its reply is lost: only that one can have committed.
// Catches BROKEN=settled_at_spare.
func TestSettledAtTheLastStart(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	other, _ := w.client(txn.Config{})
	w.set(c, "0", "a")
	w.set(other, "1", "a") // the spare timestamp conflicts
	m := w.watch(c, p, func(n int) txntest.Fault { return txntest.Fault{Reply: n == 2} })
	runs, err := w.attempt(c, "2", []string{"a"})
	if err != nil || runs != 1 || len(m.starts()) != 2 {
		t.Errorf("SETTLED-AT-SPARE: %d runs, commits at %d, %v; want 1 run, 2 commits", runs, m.starts(), err)
	}
	if s := c.Stats(); s.Settled != 1 || s.OnePhase != 2 {
		t.Errorf("%d settled, %d committed", s.Settled, s.OnePhase)
	}
}

// TestBlindWriteTwice: a late copy of a commit at a spare timestamp finds the record of the first
// one, also after later commits to the same cell.
func TestBlindWriteTwice(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "0", "a")
	m := w.watch(c, p, nil)
	commit := w.set(c, "1", "a")
	p.Inject(nil)
	w.set(c, "2", "a")
	copied := &pb.TabletRequest{Op: &pb.TabletRequest_OnePhase{OnePhase: m.commits[0]}}
	resp, _, err := c.Send(w.ctx, wire.Position{Table: w.table, Row: "a"}, copied)
	if err != nil {
		t.Fatal(err)
	}
	if res := resp.GetMutation(); res.GetStatus() != pb.Status_STATUS_COMMITTED ||
		res.CommitTs != uint64(commit) || res.SpareTs != 0 {
		t.Errorf("a copy is answered %v, want committed at %d", res, commit)
	}
	if got := w.get(c, "a"); got != "2" {
		t.Errorf("%s after a copy of an earlier commit", got)
	}
}

// TestSpareIsUsedOnce: if tablets return no spare timestamps, as those of earlier builds, a commit
// requests its start timestamp from the oracle, and never uses one again: it would find its
// predecessor's record, and pass for a copy of it. Catches BROKEN=spare_reused.
func TestSpareIsUsedOnce(t *testing.T) {
	w := newWorld(t)
	s := &ungenerous{Process: w.Process(7, 1)}
	c := txn.NewClient(s, txn.Config{})
	defer func() { _ = c.Close() }()
	w.set(c, "0", "a")
	s.silent.Store(true)
	m := w.watch(c, s.Process, nil)
	w.set(c, "1", "a")
	w.set(c, "2", "a")
	if got := w.get(c, "a"); got != "2" {
		t.Errorf("SPARE-REUSED: %s, want 2; commits at %d", got, m.starts())
	}
	if got := m.starts(); len(got) != 2 || got[0] == got[1] {
		t.Errorf("SPARE-REUSED: commits at %d", got)
	}
}

// ungenerous is a node that, once silent, returns no spare timestamps.
type ungenerous struct {
	*txntest.Process
	silent atomic.Bool
}

func (u *ungenerous) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	resp, err := u.Process.Send(ctx, d, req)
	if m := resp.GetMutation(); m != nil && u.silent.Load() {
		m.SpareTs = 0
	}
	return resp, err
}

// TestBlindWriteWithoutOracle: without a spare timestamp and without an oracle nothing is sent.
func TestBlindWriteWithoutOracle(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	m := w.watch(c, p, nil)
	ctx, cancel := context.WithCancel(w.ctx)
	p.Oracle(func(int) (mvcc.Timestamp, int, error) {
		cancel()
		return 0, 0, errors.New("no oracle")
	})
	_, err := c.Run(ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		tx.Set(key("a"), nil)
		return nil
	})
	if err == nil || errors.Is(err, txn.ErrCommitUnknown) || len(m.starts()) != 0 {
		t.Errorf("%v after commits at %d", err, m.starts())
	}
}

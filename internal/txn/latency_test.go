package txn_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/counters"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestEveryTransactionIsCountedOnce: the latency of a transaction is recorded once, under its kind
// and outcome; so are the steps of two phases.
func TestEveryTransactionIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{SettleTimeout: time.Millisecond})
	w.set(c, "0", "a") // one phase
	end := func(want error, rows ...string) {
		t.Helper()
		tx, err := c.BeginLazy(w.ctx, txn.Options{Name: "counted"})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.read(tx, "a"); got == "-" {
			t.Error("nothing in a")
		}
		for _, row := range rows {
			tx.Set(key(row), []byte("1"))
		}
		if errors.Is(want, txn.ErrConflict) {
			w.set(c, "2", rows...)
		}
		if _, err := tx.Commit(w.ctx); !errors.Is(err, want) {
			t.Fatal(err)
		}
		_ = tx.Rollback(w.ctx) // after the end: not counted again
	}
	end(nil)
	end(nil, "a")
	end(nil, "a", "h")
	end(txn.ErrConflict, "a")
	end(txn.ErrConflict, "a", "h")
	if err := w.begin(c).Rollback(w.ctx); err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	if _, err := c.Run(w.ctx, txn.Options{}, func(context.Context, *txn.Txn) error {
		return mine
	}); !errors.Is(err, mine) {
		t.Fatal(err)
	}
	p.Inject(func(req *pb.TabletRequest) txntest.Fault { // the outcome remains unknown
		return txntest.Fault{Lost: req.GetOnePhase() != nil || req.GetRollback() != nil}
	})
	end(txn.ErrCommitUnknown, "a")

	got := map[string]uint64{}
	latencies := c.Latencies()
	for k, outcomes := range latencies.Whole {
		for o, h := range outcomes {
			if n := h.Count(); n > 0 {
				got[k.String()+" "+o.String()] = n
			}
		}
	}
	// Each conflict is with a new transaction.
	want := map[string]uint64{
		"read committed": 1, "one_phase committed": 3, "one_phase conflict": 1,
		"one_phase unknown": 1, "two_phase committed": 2, "two_phase conflict": 1,
		"undecided abandoned": 2,
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	for step, want := range map[counters.Step]uint64{counters.StepPrewrite: 3, counters.StepCommit: 2} {
		if n := latencies.Steps[step].Count(); n != want {
			t.Errorf("step %v: %d, want %d", step, n, want)
		}
	}
	if latencies.Steps[counters.StepTimestamp].Count() == 0 {
		t.Error("nobody has waited for a timestamp")
	}
	s := c.Stats()
	n := s.ByName["counted"]
	if s.Conflicts != 2 || s.Unknown != 1 || s.OnePhase != 3 || s.TwoPhase != 2 ||
		s.ReadOnly != 1 || n.Committed != 3 || n.Conflicts != 2 || n.Failed != 1 ||
		n.Seconds <= 0 {
		t.Errorf("%+v, want 2 conflicts, 1 unknown, 3 in one phase, 2 in two, 1 read-only", s)
	}
	timed := latencies.ByName["counted"]
	if timed[counters.Committed].Count() != 3 || timed[counters.Conflicted].Count() != 2 ||
		timed[counters.Failed].Count() != 1 || len(timed) != 3 {
		t.Errorf("by name: %v", timed)
	}
}

// TestNamesAreBounded: names of any length and bytes are counted, by their first 128 bytes and up
// to the maximum number.
func TestNamesAreBounded(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	long := strings.Repeat("\u00fc", 1<<19)
	names := []string{long, long + "x", "\xff\xfe", "a\x00b"}
	for i := range 2000 {
		names = append(names, fmt.Sprint("n", i))
	}
	for _, name := range names {
		for range 2 {
			_, err := c.Run(w.ctx, txn.Options{Name: name}, func(context.Context, *txn.Txn) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	counted, timed := c.Stats().ByName, c.Latencies().ByName
	if len(counted) != 1024 || len(timed) != 64 {
		t.Errorf("%d names are counted, %d timed", len(counted), len(timed))
	}
	for name, n := range counted {
		if len(name) > 128 || !utf8.ValidString(name) || n.Committed == 0 {
			t.Errorf("%d bytes, %q: %+v", len(name), name[:min(len(name), 200)], n)
		}
	}
	if n := counted[long[:128]].Committed; n != 4 {
		t.Errorf("names that begin alike count as %d, not 4", n)
	}
}

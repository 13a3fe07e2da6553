package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// counted makes the process count its requests to the oracle and record the timestamps of its Get
// messages.
func (w *world) counted(c *txn.Client, p *txntest.Process) (questions *atomic.Int64,
	gets func() []uint64) {
	c.Flush() // no lock of an earlier commit may be encountered
	questions = &atomic.Int64{}
	p.Oracle(func(n int) (mvcc.Timestamp, int, error) {
		questions.Add(1)
		return w.Timestamps(n), n, nil
	})
	var mu sync.Mutex
	var ats []uint64
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if g := req.GetGet(); g != nil {
			mu.Lock()
			defer mu.Unlock()
			ats = append(ats, g.At)
		}
		return txntest.Fault{}
	})
	return questions, func() []uint64 {
		mu.Lock()
		defer mu.Unlock()
		return append([]uint64(nil), ats...)
	}
}

// TestFirstReadTakesTimestamp: a read transaction in one tablet costs one message and no request to
// the oracle; all its later reads are at the timestamp of the first.
func TestFirstReadTakesTimestamp(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "1", "a", "b", "z")
	questions, gets := w.counted(c, p)
	var start mvcc.Timestamp
	ts, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		for _, row := range []string{"a", "b", "z"} {
			if v := w.read(tx, row); v != "1" {
				t.Errorf("%s is %s", row, v)
			}
		}
		start = tx.StartTS()
		return nil
	})
	if err != nil || ts != start || start == 0 {
		t.Errorf("ended at %d, started at %d, %v", ts, start, err)
	}
	if got, want := fmt.Sprint(gets()), fmt.Sprint([]uint64{0, uint64(start),
		uint64(start)}); got != want || questions.Load() != 0 {
		t.Errorf("read at %s, want %s; %d questions to the oracle", got, want, questions.Load())
	}
}

// TestFirstReadInManyTablets: all tablets are read at one timestamp, requested from the oracle.
func TestFirstReadInManyTablets(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "1", "a", "h", "z")
	questions, gets := w.counted(c, p)
	if _, err := c.Run(w.ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
		_, err := tx.GetMulti(ctx, []txn.Key{key("a"), key("h"), key("z")})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ats := gets()
	if len(ats) != 3 || ats[0] == 0 || ats[0] != ats[1] || ats[1] != ats[2] ||
		questions.Load() != 1 {
		t.Errorf("read at %d with %d questions to the oracle", ats, questions.Load())
	}
}

// TestFirstReadSeesWhatCommitted: a transaction sees every commit that returned before its first
// read, also of transactions begun after it, and no later one.
func TestFirstReadSeesWhatCommitted(t *testing.T) {
	w := newWorld(t)
	writer, _ := w.client(txn.Config{})
	reader, _ := w.client(txn.Config{})
	for i := range 200 {
		before, after := fmt.Sprint(2*i), fmt.Sprint(2*i+1)
		_, err := reader.Run(w.ctx, txn.Options{}, func(context.Context, *txn.Txn) error {
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reader.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			w.set(writer, before, "a", "z")
			first := w.read(tx, "a")
			w.set(writer, after, "a", "z")
			if again := w.read(tx, "z"); first != before || again != before {
				t.Errorf("read %s and %s, want %s twice", first, again, before)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFirstReadConflicts: a change after the first read conflicts with a write.
func TestFirstReadConflicts(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	other, _ := w.client(txn.Config{})
	w.set(c, "0", "a")
	runs := 0
	if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		v := w.read(tx, "a")
		if runs++; runs == 1 {
			w.set(other, "1", "a")
		}
		tx.Set(key("a"), []byte(v+"+"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := w.get(c, "a"); got != "1+" || runs != 2 {
		t.Errorf("%s after %d runs: an update is lost", got, runs)
	}
}

// TestConcurrentFirstReads: of a transaction's concurrent first reads one takes the timestamp, the
// others wait for it, and all read at it.
func TestConcurrentFirstReads(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	rows := []string{"a", "b", "h", "i", "q", "z"}
	w.set(c, "1", rows...)
	questions, gets := w.counted(c, p)
	for range 50 {
		before := len(gets())
		var start mvcc.Timestamp
		if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			var wg sync.WaitGroup
			for _, row := range rows {
				wg.Go(func() { w.read(tx, row) })
			}
			wg.Wait()
			start = tx.StartTS()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		zeros := 0
		for _, at := range gets()[before:] {
			if at == 0 {
				zeros++
			} else if at != uint64(start) {
				t.Errorf("a read at %d in a transaction that started at %d", at, start)
			}
		}
		if zeros != 1 {
			t.Fatalf("%d reads took a timestamp", zeros)
		}
	}
	if questions.Load() != 0 {
		t.Errorf("%d questions to the oracle", questions.Load())
	}
}

// TestFirstReadRepeated: a first read whose reply is lost may have taken an unknown timestamp; the
// repetition takes another.
func TestFirstReadRepeated(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "1", "a")
	var sent atomic.Int64
	p.Inject(func(*pb.TabletRequest) txntest.Fault {
		switch sent.Add(1) {
		case 1:
			return txntest.Fault{Reply: true}
		case 2:
			return txntest.Fault{NotSent: true}
		}
		return txntest.Fault{Twice: true}
	})
	if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		if v := w.read(tx, "a"); v != "1" || tx.StartTS() == 0 {
			t.Errorf("read %s at %d", v, tx.StartTS())
		}
		return nil
	}); err != nil || sent.Load() != 3 {
		t.Errorf("%d messages, %v; want 3 and no error", sent.Load(), err)
	}
}

// TestStartTSBeforeRead: StartTS requests nothing. Start, Scan and Commit obtain the timestamp if
// nothing has been read; without an oracle the transaction fails, even if its function ignores the
// error.
func TestStartTSBeforeRead(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "1", "a")
	questions, gets := w.counted(c, p)
	if _, err := c.Run(w.ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
		if start := tx.StartTS(); start != 0 || questions.Load() != 0 {
			t.Errorf("StartTS before a read: %d, with %d questions to the oracle", start,
				questions.Load())
		}
		start, err := tx.Start(ctx)
		if err != nil {
			return err
		}
		w.read(tx, "a")
		if ats := gets(); start == 0 || len(ats) != 1 || ats[0] != uint64(start) ||
			tx.StartTS() != start {
			t.Errorf("started at %d, then at %d, read at %d", start, tx.StartTS(), ats)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	p.Oracle(func(int) (mvcc.Timestamp, int, error) {
		cancel()
		return 0, 0, errors.New("no oracle")
	})
	if _, err := c.Run(ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
		if start, err := tx.Start(ctx); start != 0 || err == nil {
			t.Errorf("started at %d without an oracle", start)
		}
		tx.Set(key("a"), []byte("2"))
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("committed without a start timestamp: %v", err)
	}
}

// stale answers first reads with a timestamp that is not above all those the process has seen.
type stale struct {
	*txntest.Process
	at atomic.Uint64 // 0: leave the answer unchanged
}

func (s *stale) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	resp, err := s.Process.Send(ctx, d, req)
	if at := s.at.Swap(0); at != 0 && req.GetGet().GetAt() == 0 && resp.GetGet() != nil {
		resp.GetGet().At = at
	}
	return resp, err
}

// TestFirstReadRefusesOldTimestamps: two concurrent oracles would be a fault of the cluster; a
// process never accepts a timestamp below those it has seen.
func TestFirstReadRefusesOldTimestamps(t *testing.T) {
	w := newWorld(t)
	s := &stale{Process: w.Process(7, 1)}
	c := txn.NewClient(s, txn.Config{})
	defer func() { _ = c.Close() }()
	w.set(c, "1", "a")
	seen, err := c.Timestamp(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.at.Store(uint64(seen))
	if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		if v := w.read(tx, "a"); v != "1" || tx.StartTS() <= seen {
			t.Errorf("read %s at %d, having seen %d", v, tx.StartTS(), seen)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got := c.Stats().TimestampsRefused; got != 1 {
		t.Errorf("%d timestamps refused", got)
	}
}

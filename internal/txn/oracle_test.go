package txn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// A timestamp that is not above all earlier ones is refused, and so is any other invalid answer of
// the oracle.
func TestTimestampsRefused(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	good, err := c.Timestamp(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	answers := []struct {
		first mvcc.Timestamp
		n     int
		err   error
	}{{good, 1, nil}, {good - 1, 1, nil}, {good + 1, 0, nil}, {0, 0, errors.New("down")},
		{good + 5, 1, nil}}
	i := 0
	p.Oracle(func(int) (mvcc.Timestamp, int, error) {
		a := answers[i]
		i++
		return a.first, a.n, a.err
	})
	if ts, err := c.Timestamp(w.ctx); ts != good+5 || err != nil {
		t.Errorf("%d, %v; want %d", ts, err, good+5)
	}
	if s := c.Stats(); s.TimestampsRefused != 2 {
		t.Errorf("%d refused", s.TimestampsRefused)
	}
}

// The oracle may grant fewer than requested: the remaining callers request again.
func TestTimestampsFewer(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	p.Oracle(func(int) (mvcc.Timestamp, int, error) { return w.Timestamps(1), 1, nil })
	var wg sync.WaitGroup
	var sum atomic.Int64
	for range 100 {
		wg.Go(func() {
			if _, err := c.Timestamp(w.ctx); err == nil {
				sum.Add(1)
			}
		})
	}
	wg.Wait()
	if sum.Load() != 100 {
		t.Errorf("%d of 100", sum.Load())
	}
}

// Timestamps of one caller increase; a caller that cancels does not affect the others; a closed
// client returns an error.
func TestTimestampsAndCallers(t *testing.T) {
	w := newWorld(t)
	p := txntest.New().Process(1, 1)
	c := txn.NewClient(p, txn.Config{})
	last := mvcc.Timestamp(0)
	for range 100 {
		gone, cancel := context.WithCancel(w.ctx)
		cancel()
		if _, err := c.Timestamp(gone); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		ts, err := c.Timestamp(w.ctx)
		if err != nil || ts <= last {
			t.Fatal(ts, last, err)
		}
		last = ts
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Timestamp(w.ctx); !errors.Is(err, txn.ErrClosed) {
		t.Error(err)
	}
	if _, err := c.Begin(w.ctx, txn.Options{}); !errors.Is(err, txn.ErrClosed) {
		t.Error(err)
	}
}

package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/sicheck"
)

// The number of lists in use, and of appends to a list before a new one replaces it, since lists
// are read whole.
const (
	openLists  = 6
	listLength = 60
)

// ListAppend has workers read lists and append to half of those, in transactions of up to five
// reads over several tablets, and then decides whether the whole history satisfies
// snapshot isolation (package sicheck). A third of the transactions only read a snapshot. Nothing
// is retried: each attempt is in the history with the outcome that its client received.
func ListAppend(ctx context.Context, db *percolator.DB, l Load) error {
	run, err := newRun(ctx, db)
	if err != nil {
		return err
	}
	h := &appends{run: "list" + run, began: time.Now()}
	err = l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		db := l.db(db, worker)
		if rng.IntN(3) == 0 {
			return h.snapshot(ctx, db, rng)
		}
		return h.attempt(ctx, db, rng)
	})
	if readErr := patiently(ctx, func() error {
		return h.readAll(ctx, db)
	}); err != nil || readErr != nil {
		return errors.Join(err, readErr)
	}
	found := sicheck.Check(h.txns)
	for _, a := range found[:min(len(found), 3)] {
		err = errors.Join(err, fmt.Errorf("workload: list append: %d transactions: %v", len(h.txns),
			a))
	}
	return l.keep("list append", h.txns, err)
}

// appends is the history of a run.
type appends struct {
	run   string // tells this run's lists from those of others on the same repository
	began time.Time
	value atomic.Int64 // the last one appended

	mu   sync.Mutex
	txns []sicheck.Txn
}

func (h *appends) now() int64 { return time.Since(h.began).Nanoseconds() }

func (h *appends) add(t sicheck.Txn) {
	t.Ended = h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	t.ID = len(h.txns)
	h.txns = append(h.txns, t)
}

// list returns the name of one of the lists in use.
func (h *appends) list(rng *rand.Rand) string {
	generation := int(h.value.Load()) / (openLists * listLength)
	return row(h.run, generation*openLists+rng.IntN(openLists))
}

// attempt runs one transaction, once.
func (h *appends) attempt(ctx context.Context, db *percolator.DB, rng *rand.Rand) error {
	t := sicheck.Txn{Began: h.now(), Outcome: sicheck.Aborted}
	defer func() { h.add(t) }()
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	for range 1 + rng.IntN(5) {
		key := h.list(rng)
		list, err := readList(ctx, tx, key)
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		t.Ops = append(t.Ops, sicheck.Read(key, list...))
		if rng.IntN(2) == 0 {
			v := h.value.Add(1)
			t.Ops = append(t.Ops, sicheck.Append(key, v))
			tx.Set(key, value, encodeList(append(list, v)))
		}
	}
	_, err = tx.Commit(ctx)
	switch done, unknown := outcome(err); {
	case done:
		t.Outcome = sicheck.Committed
	case unknown:
		t.Outcome = sicheck.Unknown
	}
	return err
}

// snapshot reads some of the lists in one snapshot.
func (h *appends) snapshot(ctx context.Context, db *percolator.DB, rng *rand.Rand) error {
	var keys []string
	for range 1 + rng.IntN(4) {
		keys = append(keys, h.list(rng))
	}
	return h.read(ctx, db, keys)
}

func (h *appends) read(ctx context.Context, db *percolator.DB, keys []string) error {
	t := sicheck.Txn{Began: h.now()}
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for _, key := range keys {
		list, err := readList(ctx, s, key)
		if err != nil {
			return err
		}
		t.Ops = append(t.Ops, sicheck.Read(key, list...))
	}
	h.add(t)
	return nil
}

// readAll reads every list at the end, which shows lost appends.
func (h *appends) readAll(ctx context.Context, db *percolator.DB) error {
	seen := map[string]bool{}
	var keys []string
	for _, t := range h.txns {
		for _, op := range t.Ops {
			if !seen[op.Key] {
				seen[op.Key] = true
				keys = append(keys, op.Key)
			}
		}
	}
	return h.read(ctx, db, keys)
}

func readList(ctx context.Context, r percolator.Reader, key string) ([]int64, error) {
	data, _, err := r.Get(ctx, key, value)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	var out []int64
	for s := range strings.SplitSeq(string(data), ",") {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("workload: list append: row %s holds %q, want numbers separated by commas",
				key, data)
		}
		out = append(out, v)
	}
	return out, nil
}

func encodeList(list []int64) []byte {
	var out []byte
	for i, v := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, v, 10)
	}
	return out
}

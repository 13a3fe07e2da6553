package workload

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	percolator "github.com/percolator-go/percolator"
)

// Counting is the exact-counting workload (§2.4): every row of a table changes once, a
// strong observer increments a counter and writes a trace of each commit, so that a row counted
// twice, or never, can be named.
type Counting struct {
	Table string // default "counting"; also the observer's name
	Rows  int
	// Shards is the number of counters, over which the rows are spread; 1 is contended. 0 means
	// only traces, which never conflict.
	Shards int
	Batch  int // maximum rows per run; 0: one
	// Twin registers a second observer of the same column, by which each row must be seen once too.
	Twin bool
	// Inside, if set, is called in every run before it writes; its error fails the run.
	Inside func(ctx context.Context, row string, tx *percolator.Tx) error
}

func (w Counting) table() string {
	if w.Table == "" {
		return "counting"
	}
	return w.Table
}

func (w Counting) changed() percolator.Column {
	return percolator.Column{Table: w.table(), Name: "changed"}
}
func (w Counting) count() percolator.Column {
	return percolator.Column{Table: w.table(), Name: "count"}
}
func (w Counting) trace() percolator.Column {
	return percolator.Column{Table: w.table(), Name: "trace"}
}

// Register registers the observer and, if Twin is set, the second one.
func (w Counting) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	if w.Twin {
		r.Strong(w.table()+" twin", w.changed(), func(_ context.Context, tx *percolator.Tx,
			n percolator.Notification) error {
			tx.Set(fmt.Sprintf("twin/%s/%020d", n.Row, tx.StartTS()), w.trace(), []byte("1"))
			return nil
		}, opts...)
	}
	if w.Batch == 0 {
		r.Strong(w.table(), w.changed(), w.observe, opts...)
		return
	}
	r.StrongBatch(w.table(), w.changed(), func(ctx context.Context, tx *percolator.Tx,
		changes []percolator.Notification) error {
		for _, n := range changes {
			if err := w.observe(ctx, tx, n); err != nil {
				return err
			}
		}
		return nil
	}, append(opts, percolator.Batch(w.Batch))...)
}

func (w Counting) observe(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	if w.Inside != nil {
		if err := w.Inside(ctx, n.Row, tx); err != nil {
			return err
		}
	}
	tx.Set(fmt.Sprintf("trace/%s/%020d", n.Row, tx.StartTS()), w.trace(), []byte("1"))
	if w.Shards == 0 {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.Row))
	shard := fmt.Sprintf("shard/%d", int(h.Sum32())%w.Shards)
	value, _, err := tx.Get(ctx, shard, w.count())
	if err != nil {
		return err
	}
	at, _ := strconv.Atoi(string(value))
	tx.Set(shard, w.count(), []byte(strconv.Itoa(at+1)))
	return nil
}

// Row returns the name of the i-th row.
func (w Counting) Row(i int) string { return fmt.Sprintf("row/%08d", i) }

// Load changes every row once, each in a separate transaction.
func (w Counting) Load(ctx context.Context, db *percolator.DB) error {
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: w.table()}); err != nil {
		return err
	}
	l := db.Loader(percolator.LoaderConfig{})
	for i := range w.Rows {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(w.Row(i), w.changed(), []byte("x"))
			return nil
		})
		if err != nil {
			_ = l.Close()
			return err
		}
	}
	return l.Close()
}

// Check waits until no notification is pending and checks that every row was counted exactly once.
func (w Counting) Check(ctx context.Context, db *percolator.DB) error {
	if err := db.WaitIdle(ctx); err != nil {
		return err
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := w.checkTraces(ctx, s, "trace/"); err != nil {
		return err
	}
	if w.Twin {
		if err := w.checkTraces(ctx, s, "twin/"); err != nil {
			return fmt.Errorf("by the second observer of the column: %w", err)
		}
	}
	return w.checkCounters(ctx, s, w.Rows)
}

// checkTraces checks that an observer has committed one run for each row.
func (w Counting) checkTraces(ctx context.Context, s *percolator.Snapshot, prefix string) error {
	traces, _, err := w.traces(ctx, s, prefix)
	if err != nil {
		return err
	}
	for i := range w.Rows {
		if n := traces[w.Row(i)]; n != 1 {
			return fmt.Errorf("workload: exact counting: row %s was committed %d times, want once (%d of %d rows have traces)", w.Row(i), n, len(traces), w.Rows)
		}
	}
	return nil
}

// traces counts an observer's committed runs, by row and in total.
func (w Counting) traces(ctx context.Context, s *percolator.Snapshot,
	prefix string) (byRow map[string]int, sum int, err error) {
	byRow = map[string]int{}
	for cell, err := range s.Scan(ctx, percolator.Rows(w.table()).Prefix(prefix), w.trace()) {
		if err != nil {
			return nil, 0, err
		}
		row := strings.TrimPrefix(cell.Row, prefix)
		byRow[row[:strings.LastIndexByte(row, '/')]]++
		sum++
	}
	return byRow, sum, nil
}

// checkCounters sums the counters.
func (w Counting) checkCounters(ctx context.Context, s *percolator.Snapshot, want int) error {
	if w.Shards == 0 {
		return nil
	}
	sum := 0
	for i := range w.Shards {
		value, _, err := s.Get(ctx, fmt.Sprintf("shard/%d", i), w.count())
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(value))
		sum += n
	}
	if sum != want {
		return fmt.Errorf("workload: exact counting: counters say %d, want %d", sum, want)
	}
	return nil
}

package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
)

// What a reader of changes costs writers: processor time of the writers and their node, in this process, for
// each commit into a table that a process of its own reads, and into one that nobody reads. The two tables
// get short rounds by turns, so that both meet the same machine; the ratio is the median of the
// pairs. The same pairs before the reader has started show the spread without a cause. The reader's own
// processor time is its process's.

const (
	costTable   = "cost of a reader"
	costCallers = 16
	costCommits = 40                   // of each caller in a round
	costPause   = 2 * time.Millisecond // after each commit
)

// costKind is a kind of commit: a cell in each of so many tablets.
type costKind struct {
	name    string
	tablets int
}

// feedCost measures one kind of commit on a node of its own.
func feedCost(ctx context.Context, r *harness.Run, kind costKind, dir string) (err error) {
	opened, err := openPercolator(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.close(context.WithoutCancel(ctx))) }()
	n := opened.(*onNode).node //nolint:forcetypeassert // of this package
	plain, read := percolator.Column{Table: "plain", Name: "v"}, percolator.Column{Table: "read", Name: "v"}
	for _, col := range []percolator.Column{plain, read} {
		spec := percolator.TableSpec{Name: col.Table}
		if kind.tablets > 1 {
			spec.SplitKeys = []string{"1"} // rows begin with the number of their tablet
		}
		if err := n.DB().CreateTable(ctx, spec); err != nil {
			return err
		}
	}
	if err := costPairs(ctx, r, n.DB(), kind, plain, read, 0); err != nil {
		return err
	}
	reader, stop, err := startReader(ctx, n.Addr(), read)
	if err != nil {
		return err
	}
	err = costPairs(ctx, r, n.DB(), kind, plain, read, reader)
	return errors.Join(err, stop())
}

// startReader starts a process that reads the column's table, and returns once it has read the state at the beginning.
func startReader(ctx context.Context, addr string, col percolator.Column) (pid int, stop func() error, err error) {
	c, err := turns.StartChild(ctx, fmt.Sprintf("%s=%s %s", Reader, addr, col.Table))
	if err != nil {
		return 0, nil, err
	}
	var before, after int
	if _, err := fmt.Fscanln(c.Out, &before); err != nil {
		return 0, nil, errors.Join(fmt.Errorf("%s: the reader has not begun: %w", col.Table, err), c.In.Close(), c.Wait())
	}
	return c.Process.Pid, func() error {
		err := c.In.Close()
		if _, scanned := fmt.Fscanln(c.Out, &after); scanned != nil {
			err = errors.Join(err, fmt.Errorf("%s: the reader's final count of changes: %w", col.Table, scanned))
		} else if after <= before {
			err = errors.Join(err, fmt.Errorf("%s: the reader has read %d changes of the initial state and none after it", col.Table, before))
		}
		return errors.Join(err, c.Wait())
	}, nil
}

// Reader names the environment variable that makes the program a reader of changes; its value has the
// address of a node and the name of a table.
const Reader = "PERCOLATOR_EVALUATION_READER"

// ReadChanges reads the changes of the table that of, a value of Reader, names. It prints their
// number when it has read the initial state, and again at the end: when in has ended and a later
// change was read, or 10 s after in has ended.
func ReadChanges(ctx context.Context, of string, in io.Reader, out io.Writer) error {
	var addr, table string
	if _, err := fmt.Sscan(of, &addr, &table); err != nil {
		return err
	}
	db, err := percolator.Dial(ctx, []string{addr}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	follows := make(chan struct{}) // closed by the first change after the initial state
	go func() {
		_, _ = io.Copy(io.Discard, in)
		select {
		case <-follows:
		case <-time.After(10 * time.Second):
		}
		stop()
	}()
	count, begun := 0, false
	first := sync.OnceFunc(func() { close(follows) })
	for c, err := range db.Changes(reading, 0, percolator.Rows(table)) {
		switch {
		case reading.Err() != nil:
		case err != nil:
			return errors.Join(err, db.Close())
		case c.Resolved == 0:
			if count++; begun {
				first()
			}
		case !begun:
			begun = true
			_, _ = fmt.Fprintln(out, count)
		}
	}
	_, _ = fmt.Fprintln(out, count)
	return db.Close()
}

// costPairs commits into both tables by turns. It records the processor time of a commit into plain
// and the ratios of read to plain, as medians of the pairs, and the processor time of the reader
// for each change. reader is the reader's process id; 0 means that none runs.
func costPairs(ctx context.Context, r *harness.Run, db *percolator.DB, kind costKind, plain, read percolator.Column, reader int) error {
	pairs := costPairsOf(r)
	var ratios, costs, rates []float64
	var reading time.Duration
	for pair := range pairs + 1 {
		cost, took := map[percolator.Column]float64{}, map[percolator.Column]time.Duration{}
		order := []percolator.Column{plain, read}
		if pair%2 == 1 {
			slices.Reverse(order)
		}
		for _, col := range order {
			began, used := time.Now(), harness.CPUOf()
			if err := costWrites(ctx, db, kind, col, costCommits); err != nil {
				return err
			}
			took[col] = time.Since(began)
			cost[col] = float64(harness.CPUOf()-used) / float64(time.Microsecond) / (costCallers * costCommits)
		}
		if pair == 0 { // it warms up
			reading = harness.CPUOf(reader)
			continue
		}
		ratios, costs = append(ratios, cost[read]/cost[plain]), append(costs, cost[plain])
		rates = append(rates, float64(took[plain])/float64(took[read]))
	}
	slices.Sort(ratios)
	slices.Sort(costs)
	slices.Sort(rates)
	row, aim := kind.name+", before the reader", ""
	if reader != 0 {
		row, aim = kind.name+", with the reader", "≤ 1.05"
	}
	r.Value(costTable, row, "µs CPU without", costs[len(costs)/2])
	r.Value(costTable, row, "ratio, lower quartile", ratios[len(ratios)/4])
	r.Value(costTable, row, "upper quartile", ratios[len(ratios)*3/4])
	r.Value(costTable, row, "ratio of rates", rates[len(rates)/2])
	if reader != 0 {
		changes := float64(pairs * costCallers * costCommits * kind.tablets)
		r.Value(costTable, row, "reader's µs CPU a change", float64(harness.CPUOf(reader)-reading)/float64(time.Microsecond)/changes)
	}
	r.Ratio(costTable, row, ratios[len(ratios)/2], aim)
	return nil
}

// costPairsOf returns the number of pairs.
func costPairsOf(r *harness.Run) int {
	if r.Smoke {
		return 2
	}
	return 40
}

// costWrites makes each caller commit the given number of times into the column.
func costWrites(ctx context.Context, db *percolator.DB, kind costKind, col percolator.Column, commits int) error {
	g, ctx := errgroup.WithContext(ctx)
	for caller := range costCallers {
		g.Go(func() error {
			for i := range commits {
				err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
					for tablet := range kind.tablets {
						tx.Set(fmt.Sprintf("%d %d %d", tablet, caller, i%keysPerCaller), col, payload)
					}
					return nil
				})
				if err != nil {
					return err
				}
				time.Sleep(costPause)
			}
			return nil
		})
	}
	return g.Wait()
}

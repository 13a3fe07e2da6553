package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

const (
	rowsEach = 64
	// patience is the timeout of a worker's transaction.
	patience = 10 * time.Second
	// maxSeconds is the number of seconds in which transactions are counted.
	maxSeconds = 600
)

var cell = percolator.Column{Table: "figure", Name: "count"}

// load is a set of workers that each increment their own rows, by transactions that read and
// write, and remember the acknowledged counts.
type load struct {
	cluster *cluster.Cluster
	// one client per node: a single one would measure the node that forwards for it
	dbs     []*percolator.DB
	workers []*worker
	seconds [maxSeconds]atomic.Int64
	began   time.Time

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// worker owns its rows, so that each holds a count that the worker has written, acknowledged or of
// unknown outcome.
type worker struct {
	id           int
	acknowledged [rowsEach]uint64 // the newest count that was
	tried        [rowsEach]uint64 // the newest count that was sent
	failed       int
	lost         error // a read that found less than was acknowledged
}

func newLoad(ctx context.Context, c *cluster.Cluster, workers int) (*load, error) {
	l := &load{cluster: c}
	addrs := c.Addrs()
	for i := range addrs {
		db, err := percolator.Dial(ctx, append(append([]string{}, addrs[i:]...), addrs[:i]...),
			c.ClientConfig())
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.dbs = append(l.dbs, db)
	}
	for id := range workers {
		l.workers = append(l.workers, &worker{id: id})
	}
	return l, nil
}

func (l *load) close() error {
	var errs []error
	for _, db := range l.dbs {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// row returns the i-th row of a worker. Its first bytes spread all rows over all tablets.
func row(worker, i int) string {
	return fmt.Sprintf("%03d/%d/%d", (worker*rowsEach+i)*37%1000, worker, i)
}

func (l *load) createTable(ctx context.Context) error {
	spec := percolator.TableSpec{Name: cell.Table}
	for i := 1; i < tablets; i++ {
		spec.SplitKeys = append(spec.SplitKeys, fmt.Sprintf("%03d", i*1000/tablets))
	}
	return l.dbs[0].CreateTable(ctx, spec)
}

// start starts the workers; end waits for them.
func (l *load) start(ctx context.Context, began time.Time) {
	ctx, l.stop = context.WithCancel(ctx)
	l.began = began
	for _, w := range l.workers {
		l.wg.Go(func() { l.work(ctx, w) })
	}
}

func (l *load) end() {
	l.stop()
	l.wg.Wait()
}

func (l *load) work(ctx context.Context, w *worker) {
	db := l.dbs[w.id%len(l.dbs)]
	for i := 0; ctx.Err() == nil && w.lost == nil; i = (i + 1) % rowsEach {
		if err := l.count(ctx, db, w, i); err != nil {
			if ctx.Err() == nil {
				w.failed++
			}
			continue
		}
		if s := int(time.Since(l.began) / time.Second); s < maxSeconds {
			l.seconds[s].Add(1)
		}
	}
}

// count runs one transaction. After a conflict its function runs again, and increments the count
// that it reads.
func (l *load) count(ctx context.Context, db *percolator.DB, w *worker, i int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	next := uint64(0)
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		found, err := read(ctx, tx, row(w.id, i))
		if err != nil {
			return err
		}
		w.look(i, found)
		next = max(found, w.tried[i]) + 1
		w.tried[i] = next
		tx.Set(row(w.id, i), cell, binary.BigEndian.AppendUint64(nil, next))
		return nil
	})
	if err == nil {
		w.acknowledged[i] = next
	}
	return err
}

// look compares a row's count with the acknowledged one.
func (w *worker) look(i int, found uint64) {
	if found < w.acknowledged[i] || found > w.tried[i] {
		w.lost = fmt.Errorf("row %s holds %d; acknowledged is %d, tried %d", row(w.id, i), found,
			w.acknowledged[i], w.tried[i])
	}
}

func read(ctx context.Context, r percolator.Reader, row string) (uint64, error) {
	value, ok, err := r.Get(ctx, row, cell)
	if err != nil || !ok {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("row %s holds %d bytes", row, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// perSecond returns the number of commits in each whole second.
func (l *load) perSecond() []int64 {
	var out []int64
	for i := range l.seconds {
		out = append(out, l.seconds[i].Load())
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	if len(out) > 0 {
		out = out[:len(out)-1] // it was cut off in the middle
	}
	return out
}

// check reads all rows again, and fails if an acknowledged count is lost.
func (l *load) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checking)
	defer cancel()
	for _, p := range l.cluster.Nodes() {
		if p.Running() {
			if err := p.EndQuota(); err != nil {
				return err
			}
		}
	}
	snapshot, err := l.dbs[0].Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	var errs []error
	rows, failed := 0, 0
	for _, w := range l.workers {
		failed += w.failed
		for i := range rowsEach {
			found, err := read(ctx, snapshot, row(w.id, i))
			if err != nil {
				return err
			}
			w.look(i, found)
			rows++
		}
		errs = append(errs, w.lost)
	}
	fmt.Fprintf(os.Stderr, "%d rows read again; %d transactions had not ended well within %s\n",
		rows, failed, patience)
	return errors.Join(errs...)
}

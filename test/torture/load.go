package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/workload"
)

const (
	// tablets is the number of tablets with which the workloads' table begins.
	tablets = 6
	// clients is the number of clients of each workload.
	clients = 2
	// pause is the longest rest of a worker between two operations: a saturated machine
	// would only show its own limits.
	pause = 20 * time.Millisecond
	// checking limits a workload's last reads and its decision about its history.
	checking = 3 * time.Minute
)

// counting is the workload of observers; its observers are linked in every node, except in a soak.
var counting = workload.Counting{Rows: 20_000, Shards: 8, Twin: true}

// workers are the workers of each workload, by name; default two.
var workers = map[string]int{
	"bank": 4, "list append": 6, "register": 6, "set": 3, "monotonic": 3, "oracle": 4,
	"lost update": 3, "long fork": 4,
}

// prepare makes tables and what the workloads begin with.
func prepare(ctx context.Context, db *percolator.DB) error {
	return errors.Join(workload.Prepare(ctx, db, tablets), workload.OpenBank(ctx, db))
}

// loadAll runs all workloads for the duration, each with its own clients.
func loadAll(ctx context.Context, a *arena) (Counts, error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.duration+checking)
	defer cancel()
	all := append(workload.All(), workload.Workload{Name: "exact counting", Run: counting.Feed})
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		total Counts
	)
	for i, w := range all {
		wg.Go(func() {
			counts, err := loadOne(ctx, a, w, a.o.seed+uint64(i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", w.Name, err))
			}
			total.add(counts)
		})
	}
	wg.Wait()
	return total, errors.Join(errs...)
}

// loadOne runs a workload. Its history is kept in a file if there is an anomaly in it.
func loadOne(ctx context.Context, a *arena, w workload.Workload,
	seed uint64) (c Counts, err error) {
	var dbs []*percolator.DB
	defer func() {
		for _, db := range dbs {
			c.Conflicts += db.Stats().Conflicts + db.Stats().Locked
			err = errors.Join(err, db.Close())
		}
	}()
	for range clients {
		db, err := a.dial(ctx)
		if err != nil {
			return c, err
		}
		dbs = append(dbs, db)
	}
	tally := &workload.Tally{}
	l := workload.Load{
		Workers: max(workers[w.Name], 2), Duration: a.o.duration, Seed: seed, Pause: pause,
		Others: dbs[1:], Tally: tally,
		Keep: func(name string, history any) { err = errors.Join(err, a.keep(name, history)) },
	}
	err = errors.Join(w.Run(ctx, dbs[0], l), err)
	f := tally.Figures()
	a.log("%s: %d done, %d unknown, %d failed: %v", w.Name, f.Done, f.Unknown, f.Failed, err)
	return Counts{Done: uint64(f.Done), Unknown: uint64(f.Unknown)}, err
}

// keep writes a history next to the logs.
func (a *arena) keep(name string, history any) error {
	data, err := json.Marshal(history)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, "history-"+strings.ReplaceAll(name, " ", "-")+".json"),
		data, 0o600)
}

// Counts are the operations of a run.
type Counts struct{ Done, Conflicts, Unknown uint64 }

func (c *Counts) add(other Counts) {
	c.Done += other.Done
	c.Conflicts += other.Conflicts
	c.Unknown += other.Unknown
}

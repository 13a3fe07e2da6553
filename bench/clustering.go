package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/node"
)

// The paper's document clustering (§3.1) with different numbers of observer workers, and of
// documents per run, inside the node and in a worker process: each new document has three keys, and
// its observer reads one cell per key and writes these cells and the document's cluster.

// clustering is the name of the section.
const clustering = "clustering"

const (
	documentBytes = 1 << 10
	documentKeys  = 3
	// loadBatch documents are written per transaction, by loadCallers concurrent callers:
	// faster than they are clustered.
	loadBatch   = 50
	loadCallers = 4
)

var (
	documents = percolator.Column{Table: "documents", Name: "text"}
	clusterOf = percolator.Column{Table: "documents", Name: "cluster"}
	clusters  = percolator.Column{Table: "clusters", Name: "document"}
)

// clustered is the result of one run.
type clustered struct {
	perSecond float64
	cpu       time.Duration // per document
	p50       time.Duration // from the commit of a document to that of its cluster
	messages  float64       // to tablets, per document
	cells     float64       // read, per document: messages without cache, prefetching and batches
	memory    uint64        // bytes that the Go runtime obtained from the system
}

// measureClustering measures each number of workers with each batch size, inside the node and
// apart, for o.rounds rounds, each time on a fresh store.
func measureClustering(ctx context.Context, o options, out io.Writer) (err error) {
	stop, err := o.profile.start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := fmt.Fprintf(out, "\n%s, %d documents of %d bytes\n", clustering, o.documents,
		documentBytes); err != nil {
		return err
	}
	for range o.rounds {
		var first float64
		for _, workers := range o.workers {
			for _, batch := range o.batches {
				var inside float64
				for _, where := range []string{"inside", "apart"} {
					c, err := clusterOnce(ctx, o, workers, batch, where == "apart")
					if err != nil {
						return err
					}
					first, inside = cmp.Or(first, c.perSecond), cmp.Or(inside, c.perSecond)
					if _, err := fmt.Fprintf(out, "  %4d workers %-6s, %4d in a run: %6.0f documents/s (%.2f; "+
						"of inside %.2f), %v CPU each, p50 %v, %.1f messages and %.1f cells read each by the node, %d MiB from the system\n", workers, where, batch,
						c.perSecond, c.perSecond/first, c.perSecond/inside, c.cpu.Round(time.Microsecond),
						c.p50.Round(time.Millisecond), c.messages, c.cells, c.memory>>20); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// clusterOnce loads all documents and waits until the observer, in the node or, with apart, in a
// process of its own, has clustered them.
func clusterOnce(ctx context.Context, o options, workers, batch int, apart bool) (c clustered, err error) {
	dir, err := os.MkdirTemp(o.dir, "percolator-bench-")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	took := make(latencies, 2*o.documents)
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.ObserverWorkers = dir, "127.0.0.1:0", "", true,
		workers
	if !apart {
		cfg.Observers = took.clustering(batch)
	}
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, n.Close(ctx)) }()
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: clusters.Table}); err != nil {
		return c, err
	}
	var process *apartProcess
	if apart {
		if process, err = startApart(ctx, n, workers, batch, o.documents); err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, process.end()) }()
	}
	runtime.GC()
	began, used := time.Now(), turns.CPU()
	if err := loadRows(ctx, n.DB(), o.documents, documents, make([]byte, documentBytes)); err != nil {
		return c, err
	}
	if err := n.DB().WaitIdle(ctx); err != nil {
		return c, err
	}
	c.perSecond = float64(o.documents) / time.Since(began).Seconds()
	c.cpu = turns.CPU() - used
	sent := n.DB().Stats()
	for _, messages := range sent.Messages {
		c.messages += float64(messages) / float64(o.documents)
	}
	c.cells = float64(sent.ReadCells-sent.PrefetchAsked+sent.CacheHits) / float64(o.documents)
	var ran int
	if apart {
		if err := process.end(); err != nil {
			return c, err
		}
		ran, c.p50 = process.ran, process.p50
		c.cpu += process.ProcessState.UserTime() + process.ProcessState.SystemTime()
	} else {
		ran, c.p50 = took.result()
	}
	c.cpu /= time.Duration(o.documents)
	if ran < o.documents {
		return c, fmt.Errorf("%d of %d documents were clustered", ran, o.documents)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.memory = m.Sys - m.HeapReleased
	return c, nil
}

// cluster is the observer: three reads and four writes per document.
func cluster(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	keys := make([]percolator.CellKey, 0, documentKeys*len(changes))
	for _, n := range changes {
		for i := range documentKeys {
			h := fnv.New64a()
			_, _ = fmt.Fprint(h, n.Row, i) // a hash does not fail
			keys = append(keys, percolator.CellKey{
				Row: string(binary.BigEndian.AppendUint64(nil, h.Sum64())), Column: clusters,
			})
		}
	}
	found, err := tx.GetMulti(ctx, keys...)
	if err != nil {
		return err
	}
	known := make(map[string][]byte, len(found))
	for _, c := range found {
		known[c.Row] = c.Value
	}
	for i, n := range changes {
		of := []byte(n.Row)
		own := keys[documentKeys*i : documentKeys*(i+1)]
		for _, k := range own {
			if id, ok := known[k.Row]; ok {
				of = id
				break
			}
		}
		for _, k := range own {
			tx.Set(k.Row, k.Column, of)
			known[k.Row] = of
		}
		tx.Set(n.Row, clusterOf, of)
	}
	return nil
}

// loadRows writes rows in transactions of loadBatch.
func loadRows(ctx context.Context, db *percolator.DB, count int, column percolator.Column,
	value []byte) error {
	var group errgroup.Group
	group.SetLimit(loadCallers)
	for first := 0; first < count; first += loadBatch {
		group.Go(func() error {
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				for i := first; i < min(first+loadBatch, count); i++ {
					tx.Set(row(0, i), column, value)
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// latencies are the times from the commit of a document to that of its cluster.
type latencies chan time.Duration

// clustering registers the observer.
func (l latencies) clustering(batch int) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		r.StrongBatch(clustering, documents, func(ctx context.Context, tx *percolator.Tx,
			changes []percolator.Notification) error {
			if err := cluster(ctx, tx, changes); err != nil {
				return err
			}
			for _, n := range changes {
				select {
				case l <- time.Since(n.CommitTS.Time()):
				default: // full with twice the documents, by repeated runs
				}
			}
			return nil
		}, percolator.Batch(batch))
	}
}

// result returns the number of clustered documents and the median of their times.
func (l latencies) result() (ran int, p50 time.Duration) {
	close(l)
	var all []time.Duration
	for d := range l {
		all = append(all, d)
	}
	if len(all) == 0 {
		return 0, 0
	}
	return len(all), quantile(all, 0.5)
}

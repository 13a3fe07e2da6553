package ablation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

const (
	mechanismTable = "a document, 64 callers"
	callers        = 64
	// loaded is the number of documents, which are processed again and again.
	loaded = 150 * callers
	// manyDocuments are processed in one transaction by the variant with batches.
	manyDocuments = 20
)

var (
	slogDiscard = slog.New(slog.DiscardHandler)
	documents   = "documents"
	attributes  = []percolator.Column{{Table: documents, Name: "text"}, {Table: documents, Name: "language"}, {Table: documents, Name: "site"}}
	clusterOf   = percolator.Column{Table: documents, Name: "cluster"}
	clusters    = percolator.Column{Table: "clusters", Name: "document"}
)

// variant is the processing of documents with something switched off, or on.
type variant struct {
	name string
	setup
	forget bool // gives each transaction a name of its own, so that nothing is learned for prefetching
	apart  bool // reads cells of different rows one after the other
	batch  int  // documents in one transaction
}

// variants begins with the baseline of ratios.
func variants() []variant {
	one := config.BatchConfig{MaxMessages: 1}
	linger := config.BatchConfig{Linger: time.Millisecond}
	return []variant{
		{name: "all defaults", batch: 1},
		{name: "without prefetching", forget: true, batch: 1},
		{name: "without the cache", setup: setup{client: txn.Config{ReadCacheBytes: 1}}, batch: 1},
		{name: "without prefetching, cache and reads of several rows", setup: setup{client: txn.Config{ReadCacheBytes: 1}}, forget: true, apart: true, batch: 1},
		{name: "client sends one operation in a message", setup: setup{batch: config.Batch{Client: one}}, batch: 1},
		{name: "without asynchronous commits", setup: setup{client: txn.Config{AsyncCommits: func() bool { return false }}}, batch: 1},
		{name: "tablets and log handle one at a time", setup: setup{batch: config.Batch{Tablet: one, Log: one}}, batch: 1},
		{name: "nothing is batched", setup: setup{
			batch:  config.Batch{Tablet: one, Log: one, Client: one, Oracle: one, Lockd: one},
			client: txn.Config{ReadCacheBytes: 1},
		}, forget: true, apart: true, batch: 1},
		{name: "tablets wait 1 ms for more", setup: setup{batch: config.Batch{Tablet: linger}}, batch: 1},
		{name: fmt.Sprintf("%d documents in a transaction", manyDocuments), batch: manyDocuments},
	}
}

// mechanisms measures each variant once, and its ratio to the first.
func mechanisms(ctx context.Context, r *harness.Run, round int) error {
	all := variants()
	rates := make([]float64, len(all))
	for _, i := range order(r, round, len(all)) {
		err := with(ctx, r, all[i].setup, func(repo *repository) (err error) {
			rates[i], err = all[i].measure(ctx, r, repo)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
	}
	for i, v := range all[1:] {
		r.Ratio(mechanismTable, v.name, rates[i+1]/rates[0], "")
	}
	r.Paper(mechanismTable, all[0].name, "about 50 operations, divided by 10 (§2.5)")
	return nil
}

// order returns the order in which a round measures n kinds: ascending in the first round, which
// determines the order of the tables' rows, and random in each other, so that periodic work does
// not hit the same kind in all.
func order(r *harness.Run, round, n int) []int {
	if round > 0 {
		return rand.New(rand.NewPCG(r.Seed, uint64(round))).Perm(n)
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// measure processes documents for a while and returns their rate.
func (v variant) measure(ctx context.Context, r *harness.Run, repo *repository) (float64, error) {
	count, d := loaded, 1500*time.Millisecond
	if r.Smoke {
		count, d = 4*callers, 50*time.Millisecond
	}
	if err := load(ctx, repo.db, count); err != nil {
		return 0, err
	}
	processed := make([]atomic.Bool, count)
	var done atomic.Int64
	process := func(ctx context.Context, caller, i int) error {
		// Callers have documents of their own, so that transactions do not conflict.
		own := make([]int, v.batch)
		for k := range own {
			own[k] = (caller + (i*v.batch+k)*callers) % count
		}
		err := repo.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			return v.process(ctx, tx, own)
		}, percolator.Name(v.nameOf(caller, i)))
		if err == nil {
			done.Add(int64(v.batch))
			for _, document := range own {
				processed[document].Store(true)
			}
		}
		return err
	}
	if _, err := turns.Repeat(ctx, callers, 0, d/5, process); err != nil { // patterns are learned
		return 0, err
	}
	done.Store(0)
	before, began := repo.used(), time.Now()
	f, err := turns.Repeat(ctx, callers, 0, d, process)
	if err != nil {
		return 0, err
	}
	took, after, n := time.Since(began), repo.used(), float64(done.Load())
	r.Value(mechanismTable, v.name, "documents/s", n/took.Seconds())
	r.Value(mechanismTable, v.name, "ms p50", f.Millis(0.5)[0])
	r.Value(mechanismTable, v.name, "operations", float64(after.operations-before.operations)/n)
	r.Value(mechanismTable, v.name, "tablet batches", float64(after.batches-before.batches)/n)
	r.Value(mechanismTable, v.name, "syncs", float64(after.syncs-before.syncs)/n)
	r.Value(mechanismTable, v.name, "µs CPU", float64((after.cpu-before.cpu).Microseconds())/n)
	return n / took.Seconds(), verify(ctx, repo.db, processed)
}

func (v variant) nameOf(caller, i int) string {
	if v.forget {
		return fmt.Sprintf("document-%d-%d", caller, i)
	}
	return "document"
}

func documentOf(i int) string { return fmt.Sprintf("document-%06d", i) }

// load creates the tables and writes the documents' attributes.
func load(ctx context.Context, db *percolator.DB, count int) error {
	for _, name := range []string{documents, clusters.Table} {
		if err := db.CreateTable(ctx, percolator.TableSpec{Name: name}); err != nil {
			return err
		}
	}
	const perTransaction = 500
	l := db.Loader(percolator.LoaderConfig{Workers: 4})
	for from := 0; from < count; from += perTransaction {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := from; i < min(from+perTransaction, count); i++ {
				for _, column := range attributes {
					tx.Set(documentOf(i), column, make([]byte, 100))
				}
			}
			return nil
		})
		if err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return l.Close()
}

// process reads the attributes of the documents own and the first of these attributes again, then
// the cells of the documents' keys, three keys a document (§3.1), and writes these cells and the
// documents' clusters. A single document's attributes are read one after the other, as program
// logic does; those of several together.
func (v variant) process(ctx context.Context, tx *percolator.Tx, own []int) error {
	var cells, keys []percolator.CellKey
	for _, i := range own {
		for _, column := range attributes {
			cells = append(cells, percolator.CellKey{Row: documentOf(i), Column: column})
		}
		for k := range 3 {
			row := fmt.Sprintf("%08x-%d", uint32(i*3+k)*2654435761, k) // a hash: keys are anywhere in the table
			keys = append(keys, percolator.CellKey{Row: row, Column: clusters})
		}
	}
	err := read(ctx, tx, cells, len(own) == 1)
	if err = cmp.Or(err, read(ctx, tx, cells[:1], false), read(ctx, tx, keys, v.apart)); err != nil {
		return err
	}
	for n, k := range keys {
		tx.Set(k.Row, k.Column, []byte(documentOf(own[n/3])))
	}
	for _, i := range own {
		tx.Set(documentOf(i), clusterOf, []byte(documentOf(i)))
	}
	return nil
}

// read reads cells, one after the other or together.
func read(ctx context.Context, tx *percolator.Tx, keys []percolator.CellKey, oneByOne bool) error {
	if !oneByOne {
		_, err := tx.GetMulti(ctx, keys...)
		return err
	}
	for _, k := range keys {
		if _, _, err := tx.Get(ctx, k.Row, k.Column); err != nil {
			return err
		}
	}
	return nil
}

// verify fails unless exactly the processed documents have a cluster, each its own.
func verify(ctx context.Context, db *percolator.DB, processed []atomic.Bool) error {
	want := 0
	for i := range processed {
		if processed[i].Load() {
			want++
		}
	}
	return db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		found := 0
		for cell, err := range s.Scan(ctx, percolator.Rows(documents), clusterOf) {
			if err != nil {
				return err
			}
			if string(cell.Value) != cell.Row {
				return fmt.Errorf("%s is in cluster %s, not in its own", cell.Row, cell.Value)
			}
			found++
		}
		if found != want {
			return fmt.Errorf("%d documents have a cluster; %d were processed", found, want)
		}
		return nil
	})
}

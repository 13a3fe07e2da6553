package peers

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	scratch "github.com/percolator-go/percolator/bench/evaluation/postgres"
)

// The paper's document clustering (§3.1) as a queue of documents, compared with workers over a queue
// in PostgreSQL. A document has three keys; for each key the worker reads the document recorded for
// it and writes a new one, and then writes the document's cluster. All do the same work with the same
// number and concurrency of loading transactions, and every commit synced. The node is in this
// process, and PostgreSQL's server is reached through a local socket.

const (
	documentBytes = 1 << 10
	documentKeys  = 3
	atOnce        = 100 // documents in one transaction of a worker
	// batchesAtOnce is the number of concurrent transactions of workers that handle batches, and
	// singlesAtOnce of those that handle one document each.
	batchesAtOnce, singlesAtOnce = 4, 32
)

// loading is a way of writing the documents.
type loading struct {
	name    string
	batch   int // documents per transaction
	callers int
	aim     string // of the ratio to PostgreSQL's batching workers
}

var loadings = []loading{
	{"loaded one by one", 1, 32, "≥ 2"},
	{"loaded by hundred", 100, 4, "≥ 1.0"},
}

// clusterer is a store of documents. Its workers run from open to close.
type clusterer interface {
	// load writes the documents with these names, in one transaction.
	load(ctx context.Context, names []string, text []byte) error
	// wait returns when all loaded documents have a cluster.
	wait(ctx context.Context) error
	// count returns how many documents have a cluster.
	count(ctx context.Context) (int, error)
	// cpu returns the processor time of processes that are not this one.
	cpu() time.Duration
	close(ctx context.Context) error
}

type clustererKind struct {
	name string
	open func(ctx context.Context, dir string) (clusterer, error)
	// beside is the kind to whose rate the rate of this one is compared.
	beside string
	own    bool
}

var clusterers = []clustererKind{
	{name: postgresBatches, open: openPostgres(takeHundred, batchesAtOnce)},
	{name: "PostgreSQL, plpgsql", open: openPostgres(takeInServer, batchesAtOnce)},
	{name: postgresSingles, open: openPostgres(takeOne, singlesAtOnce)},
	{name: ours + ", by hundred", open: openDocuments(atOnce), beside: postgresBatches, own: true},
	{name: ours + ", one at a time", open: openDocuments(1), beside: postgresSingles, own: true},
}

const postgresBatches, postgresSingles = "PostgreSQL, batching workers", "PostgreSQL, plain"

// runDocuments measures the kinds in turns, for each way of loading.
func runDocuments(ctx context.Context, r *harness.Run) error {
	documents := map[bool]int{true: 300, false: 10000}
	_, missing := scratch.Bin()
	if missing != nil {
		r.Logf("skipped PostgreSQL: %v", missing)
		r.Note("PostgreSQL was skipped: %v.", missing)
	}
	for range r.Rounds {
		for _, l := range loadings {
			if r.Smoke && l.batch == 1 {
				continue
			}
			rates := map[string]float64{}
			for _, k := range clusterers {
				if missing != nil && !k.own {
					continue
				}
				rate, err := clusterAll(ctx, r, k, l, documents[r.Smoke])
				if err != nil {
					return fmt.Errorf("%s, %s: %w", k.name, l.name, err)
				}
				if rates[k.name] = rate; rates[k.beside] > 0 {
					aim := l.aim
					if k.beside != postgresBatches {
						aim = ""
					}
					r.Ratio(l.name, k.name, rate/rates[k.beside], aim)
				}
			}
		}
	}
	r.Note("%d documents of %d bytes, %d keys each; batches are of %d documents. Ratios: by hundred to PostgreSQL's batching workers, one at a time to plain ones.",
		documents[r.Smoke], documentBytes, documentKeys, atOnce)
	return nil
}

// clusterAll measures one kind on a fresh directory, from the first load to the last cluster, and
// returns its rate.
func clusterAll(ctx context.Context, r *harness.Run, k clustererKind, l loading, documents int) (rate float64, err error) {
	err = harness.InDir(r.Dir, func(dir string) (err error) {
		s, err := k.open(ctx, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
		before, began := harness.CPUOf()+s.cpu(), time.Now()
		text := make([]byte, documentBytes)
		group, loadCtx := errgroup.WithContext(ctx)
		group.SetLimit(l.callers)
		for first := 0; first < documents; first += l.batch {
			group.Go(func() error {
				var names []string
				for i := first; i < min(first+l.batch, documents); i++ {
					names = append(names, fmt.Sprintf("document/%08d", i))
				}
				return s.load(loadCtx, names, text)
			})
		}
		if err := cmp.Or(group.Wait(), s.wait(ctx)); err != nil {
			return err
		}
		rate = float64(documents) / time.Since(began).Seconds()
		used := harness.CPUOf() + s.cpu() - before
		r.Value(l.name, k.name, "documents/s", rate)
		r.Value(l.name, k.name, "µs CPU/document", float64(used.Microseconds())/float64(documents))
		n, err := s.count(ctx)
		if err == nil && n != documents {
			err = fmt.Errorf("%d of %d documents have a cluster", n, documents)
		}
		return err
	})
	return rate, err
}

// keysOf returns a document's keys.
func keysOf(document string) (keys [documentKeys]string) {
	for i := range keys {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, document, i) // a hash does not fail
		keys[i] = string(binary.BigEndian.AppendUint64(nil, h.Sum64()))
	}
	return keys
}

// clusterOf returns a document's cluster: the document recorded for the first of its keys that has
// one, or else the document itself. It records the cluster for all its keys.
func clusterOf(document string, known map[string]string) string {
	keys, of := keysOf(document), document
	for _, k := range keys {
		if id, ok := known[k]; ok {
			of = id
			break
		}
	}
	for _, k := range keys {
		known[k] = of
	}
	return of
}

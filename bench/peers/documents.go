package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// The paper's document clustering (§3.1) as a queue of documents of which a worker handles a
// hundred per transaction: an observer with batches, compared with a queue in PostgreSQL. A
// document has three keys; for each key the worker reads the document recorded for it and writes
// a new one, and then writes the document's cluster. Both do the same work in the same process,
// with the same number and concurrency of loading transactions, and every commit synced.

const (
	documentBytes = 1 << 10
	documentKeys  = 3
	atOnce        = 100 // documents in one transaction of a worker
)

// loading is a way of writing the documents.
type loading struct {
	name    string
	batch   int // documents per transaction
	callers int
	target  float64 // intended ratio to PostgreSQL's rate
}

var loadings = []loading{
	{"loads one by one", 1, 32, 1.5},
	{"loads by hundred", 100, 4, 0.8},
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
	cpu() (time.Duration, error)
	close(ctx context.Context) error
}

type clustererKind struct {
	name string
	open func(ctx context.Context, dir string) (clusterer, error)
}

var clusterers = []clustererKind{{"PostgreSQL", openPostgres}, {ours, openDocuments}}

// measured is the result of one run.
type measured struct {
	rate float64
	cpu  time.Duration // per document
}

// runDocuments compares the kinds whose names contain only, under the ways of loading whose names
// contain loads. Without PostgreSQL it prints a message and measures nothing.
func runDocuments(ctx context.Context, only, loads string, documents, rounds int,
	dir string) error {
	chosen := slices.DeleteFunc(slices.Clone(clusterers), func(k clustererKind) bool {
		return !strings.Contains(k.name, only)
	})
	if _, err := postgresBin(); err != nil && chosen[0].name != ours {
		fmt.Println("skipped:", err)
		return nil
	}
	return compareDocuments(ctx, chosen, loads, documents, rounds, dir)
}

// compareDocuments measures both kinds in turns, for each way of loading.
func compareDocuments(ctx context.Context, only []clustererKind, loads string, documents,
	rounds int, dir string) error {
	fmt.Printf("document clustering: %d documents of %d bytes, %d keys, "+
		"%d documents in a transaction, every commit synced\n", documents, documentBytes, documentKeys, atOnce)
	for _, l := range loadings {
		if !strings.Contains(l.name, loads) {
			continue
		}
		fmt.Println()
		rates := map[string][]float64{}
		for round := range rounds {
			for _, k := range only {
				m, err := clusterAll(ctx, k, l, documents, dir)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", k.name, l.name, err)
				}
				fmt.Printf("round %d  %s  %-10s %7.0f documents/s, %v of CPU each\n", round+1, l.name,
					k.name, m.rate, m.cpu.Round(time.Microsecond))
				rates[k.name] = append(rates[k.name], m.rate)
			}
		}
		if len(rates) < 2 {
			continue
		}
		var ratios []float64
		for i, rate := range rates["PostgreSQL"] {
			ratios = append(ratios, rates[ours][i]/rate)
		}
		slices.Sort(ratios)
		fmt.Printf("%s: %s / PostgreSQL: median %.2f, lowest %.2f (target %.1f)\n", l.name, ours,
			ratios[len(ratios)/2], ratios[0], l.target)
	}
	return nil
}

// clusterAll measures one kind on a fresh directory, from the first load to the last cluster.
func clusterAll(ctx context.Context, k clustererKind, l loading, documents int,
	parent string) (m measured, err error) {
	dir, err := os.MkdirTemp(parent, "peers-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := k.open(ctx, dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	before, err := allCPU(s)
	if err != nil {
		return m, err
	}
	began := time.Now()
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
		return m, err
	}
	took := time.Since(began)
	after, err := allCPU(s)
	if err != nil {
		return m, err
	}
	if n, err := s.count(ctx); err != nil || n != documents {
		return m, errors.Join(err, fmt.Errorf("%d of %d documents have a cluster", n, documents))
	}
	return measured{
		rate: float64(documents) / took.Seconds(), cpu: (after - before) / time.Duration(documents),
	}, nil
}

// allCPU returns the processor time of this process and of the store's processes.
func allCPU(s clusterer) (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	others, err := s.cpu()
	return time.Duration(u.Utime.Nano()+u.Stime.Nano()) + others, err
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

// clusterOf returns a document's cluster, the first document recorded for one of its keys or the
// document itself, and records it for its keys.
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

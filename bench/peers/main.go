// Command peers compares a common transaction, which reads a cell and writes it if it has not
// changed since, with an embedded etcd: both in this process, without a network, on fresh
// directories, with every commit synced, in turns within one run. With -documents it compares
// the clustering of documents, a hundred per transaction, with workers over a queue in
// PostgreSQL, and with -closure checks of permissions by recipes/closure with recursive queries
// there; with -changes the feed of changes with etcd's watch and PostgreSQL's logical replication. PostgreSQL must be installed (Debian: apt-get install postgresql); the program starts
// servers of its own, as the user postgres if it runs as root. It is a module of its own so that
// the main module depends on neither.
//
//	go run .                      in this directory, or: make bench-peers
//	go run . -documents 20000     or: make bench-peers ARGS='-documents 20000'
//	go run . -closure             or: make bench-peers ARGS=-closure
//	go run . -changes             or: make bench-peers ARGS=-changes
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// target is the intended ratio to etcd's rate.
const target = 2.0

// keysPerCaller is the number of keys that each caller uses in turn. No two callers share a key, so
// that transactions do not conflict.
const keysPerCaller = 20

var payload = []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123")

// subject is an open store.
type subject interface {
	// transact reads the key and writes it if it has not changed since.
	transact(ctx context.Context, key string) error
	close(ctx context.Context) error
}

// kind is a store to measure.
type kind struct {
	name string
	open func(ctx context.Context, dir string) (subject, error)
}

var kinds = []kind{
	{"etcd, serializable get", func(ctx context.Context, dir string) (subject, error) {
		return openEtcd(ctx, dir, true)
	}},
	{"etcd, linearizable get", func(ctx context.Context, dir string) (subject, error) {
		return openEtcd(ctx, dir, false)
	}},
	{"percolator", openPercolator},
}

// ours is the kind whose ratios to the others are printed.
const ours = "percolator"

func main() {
	callers := flag.Int("callers", 64, "number of concurrent callers")
	duration := flag.Duration("duration", 3*time.Second, "duration of each measurement")
	rounds := flag.Int("rounds", 3, "number of measurements of each kind, in turns")
	only := flag.String("only", "", "measure only the kinds whose name contains this, without ratios")
	profile := flag.String("cpuprofile", "",
		"write a CPU profile of all measurements to this file")
	dir := flag.String("dir", "", "directory for the stores; default: the temporary directory")
	documents := flag.Int("documents", 0,
		"cluster this many documents instead (try 20000), compared with PostgreSQL")
	loads := flag.String("loads", "", "with -documents: only the ways of loading whose name contains this")
	closures := flag.Bool("closure", false,
		"check who may read what through nested groups instead, compared with PostgreSQL")
	changes := flag.Bool("changes", false,
		"measure the time until a subscriber sees a write instead, compared with etcd's watch and PostgreSQL's logical replication")
	flag.Parse()
	if *changes {
		if err := runChanges(context.Background(), *rounds, *duration, *dir); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		return
	}
	if *closures {
		if err := runClosure(context.Background(), *duration, *dir); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		return
	}
	if *documents > 0 {
		err := profiled(*profile, func() error {
			return runDocuments(context.Background(), *only, *loads, *documents, *rounds, *dir)
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		return
	}
	chosen := kinds
	if *only != "" {
		chosen = slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
			return !strings.Contains(k.name, *only)
		})
	}
	err := profiled(*profile, func() error {
		return run(context.Background(), chosen, *callers, *duration, *rounds, *dir)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// profiled calls fn and writes a CPU profile of it to the file, if one is named.
func profiled(file string, fn func() error) error {
	if file == "" {
		return fn()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	err = fn()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

func run(ctx context.Context, kinds []kind, callers int, d time.Duration, rounds int,
	dir string) error {
	rates := map[string][]float64{}
	fmt.Printf("get, then put if unchanged; %d callers in process, %d-byte values, every commit synced, %v each\n\n", callers, len(payload), d)
	for round := range rounds {
		for _, k := range kinds {
			rate, err := measure(ctx, k, callers, d, dir)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			fmt.Printf("round %d  %-24s %8.0f/s\n", round+1, k.name, rate)
			rates[k.name] = append(rates[k.name], rate)
		}
	}
	fmt.Println()
	for _, k := range kinds {
		if k.name == ours || rates[ours] == nil {
			continue
		}
		var ratios []float64
		for i, rate := range rates[k.name] {
			ratios = append(ratios, rates[ours][i]/rate)
		}
		slices.Sort(ratios)
		fmt.Printf("%s / %s: median %.1f, lowest %.1f (target %.1f)\n", ours, k.name,
			ratios[len(ratios)/2], ratios[0], target)
	}
	return nil
}

// measure runs one kind on a fresh directory and returns its transactions per second.
func measure(ctx context.Context, k kind, callers int, d time.Duration,
	parent string) (rate float64, err error) {
	dir, err := os.MkdirTemp(parent, "percolator-peers-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := k.open(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	return load(ctx, s, callers, d)
}

func load(ctx context.Context, s subject, callers int, d time.Duration) (float64, error) {
	var (
		wg             sync.WaitGroup
		counting, stop atomic.Bool
		total          atomic.Int64
		mu             sync.Mutex
		failed         error
	)
	for c := range callers {
		wg.Go(func() {
			n := int64(0)
			for i := 0; !stop.Load(); i++ {
				if err := s.transact(ctx, fmt.Sprintf("k%d/%d", c, i%keysPerCaller)); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
				if counting.Load() {
					n++
				}
			}
			total.Add(n)
		})
	}
	time.Sleep(d / 5) // a warm-up
	begin := time.Now()
	counting.Store(true)
	time.Sleep(d)
	counting.Store(false)
	took := time.Since(begin)
	stop.Store(true)
	wg.Wait()
	return float64(total.Load()) / took.Seconds(), failed
}

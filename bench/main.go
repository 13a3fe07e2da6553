// Command bench measures one node: transactions, the raw tablet path and two kinds of bare
// Badger as denominators, all in one run and on fresh stores, so that the ratios are
// meaningful on a shared machine.
//
//	go run ./bench                     the table
//	go run ./bench -only clustering -documents 20000
//	                                   the paper's document clustering, with increasing numbers of workers
//	go run ./bench -only fan-out -leaves 100000
//	                                   one change that triggers as many runs, compared with small transactions
//	go run ./bench -only costs -callers 64 -rounds 9
//	                                   the cost of metrics, the console and traces, in turns
//	go run ./bench -sync-delay 2ms     the table, with a delay added to every sync (needs strace)
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/percolator-go/percolator/bench/turns"
	processes "github.com/percolator-go/percolator/test/cluster"
)

type options struct {
	duration  time.Duration
	callers   []int
	syncDelay time.Duration
	rounds    int
	dir       string
	profile   profiles
	only      string
	documents int
	leaves    int
	workers   []int
	batches   []int
}

func main() { turns.Main("bench", run) }

func run(ctx context.Context) error {
	if os.Getenv(collecting) != "" {
		return runCollector(os.Stdout, os.Stdin)
	}
	if of := os.Getenv(apart); of != "" {
		return runApart(ctx, of, os.Stdin, os.Stdout)
	}
	o := options{}
	flag.IntVar(&o.documents, "documents", 0, "number of documents to cluster (try 20000); 0: skip clustering")
	flag.IntVar(&o.leaves, "leaves", 0, "number of rows that one change writes, each observed (try 100000); 0: skip fan-out")
	workers := flag.String("workers", "16,64,128,256",
		"with -documents: comma-separated numbers of observer workers; ratios are to the first")
	batches := flag.String("batches", "1,100",
		"with -documents: comma-separated maximum numbers of documents per run")
	callers := flag.String("callers", "1,64,512", "comma-separated numbers of concurrent callers")
	flag.DurationVar(&o.duration, "duration", 3*time.Second, "duration of each measurement")
	flag.IntVar(&o.rounds, "rounds", 3, "number of measurements of each kind, in turns; rates are the best, ratios the median")
	flag.DurationVar(&o.syncDelay, "sync-delay", 0,
		"delay added to every msync, fsync, fdatasync and syncfs, by strace")
	flag.StringVar(&o.dir, "dir", "", "directory for the stores; default: the temporary directory")
	flag.StringVar(&o.profile.cpu, "cpuprofile", "",
		"write a CPU profile to this file; use -only and one number of -callers")
	flag.StringVar(&o.profile.allocs, "memprofile", "", "write a profile of allocations to this file")
	flag.StringVar(&o.profile.block, "blockprofile", "", "write a profile of blocking to this file")
	flag.StringVar(&o.profile.mutex, "mutexprofile", "", "write a profile of contended mutexes to this file")
	flag.StringVar(&o.only, "only", "", "measure only the kinds whose name contains this")
	flag.Parse()
	var err error
	if o.callers, err = numbers("callers", *callers); err != nil {
		return err
	}
	if o.workers, err = numbers("workers", *workers); err != nil {
		return err
	}
	if o.batches, err = numbers("batches", *batches); err != nil {
		return err
	}
	if o.syncDelay > 0 && os.Getenv(delayed) == "" {
		return underStrace(o.syncDelay)
	}
	return runAll(ctx, o, os.Stdout)
}

// numbers parses a comma-separated list.
func numbers(name, list string) (out []int, err error) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-%s is %q; its numbers must be at least 1", name, list)
		}
		out = append(out, n)
	}
	return out, nil
}

func runAll(ctx context.Context, o options, out io.Writer) error {
	if o.only == costs {
		return measureCosts(ctx, o, out)
	}
	r, err := measureAll(ctx, o)
	if err != nil {
		return err
	}
	if err := report(out, o, r); err != nil {
		return err
	}
	if o.documents != 0 && strings.Contains(clustering, o.only) {
		if err := measureClustering(ctx, o, out); err != nil {
			return err
		}
	}
	if o.leaves == 0 || !strings.Contains(fanout, o.only) {
		return nil
	}
	return measureFanout(ctx, o, out)
}

// delayed marks the process that runs under strace.
const delayed = "PERCOLATOR_BENCH_DELAYED"

// underStrace runs this program again under strace, which delays every sync, those of bare
// Badger included.
func underStrace(delay time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	words, err := processes.Slowed(append([]string{self}, os.Args[1:]...), delay)
	if err != nil {
		return fmt.Errorf("-sync-delay: %w", err)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), delayed+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

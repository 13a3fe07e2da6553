// Command backup measures how much a backup slows down a concurrent load: the ratio of the rate
// of transactions while the command `percolator backup create` runs on the same machine to the
// rate without it, in turns, which also works on a shared machine. Before that it measures a
// backup without load, in processor time, which other programs influence least.
//
//	go run ./bench/backup -build bin -size 1024 -rates 8MiB,16MiB,0 -rounds 5
//
// A rate of 0 means unlimited.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/test/cluster"
)

type options struct {
	binary   string
	size     int64
	rates    []string
	nodes    int
	callers  int
	rounds   int
	duration time.Duration
}

// The rows that are backed up and that the load reads and writes: bytes of words per row, and
// rows per transaction of the initial load.
const (
	valueBytes = 1000
	fillAtOnce = 64
	tablets    = 16
)

var column = percolator.Column{Table: "bench", Name: "c"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "backup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	var o options
	build := flag.String("build", "bin", "the folder with the binary percolator")
	mib := flag.Int64("size", 1024, "MiB of values in the cluster")
	rates := flag.String("rates", "8MiB,16MiB,0", "comma-separated rates of the backup, in bytes per second; 0: unlimited")
	flag.IntVar(&o.nodes, "nodes", 1, "number of nodes")
	flag.IntVar(&o.callers, "callers", 64, "number of concurrent callers")
	flag.IntVar(&o.rounds, "rounds", 5, "number of measurements with a backup of each rate and without, in turns")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "duration of each measurement")
	flag.Parse()
	if o.binary, err = filepath.Abs(filepath.Join(*build, "percolator")); err != nil {
		return err
	}
	if flag.NArg() > 0 || *mib < 1 || o.nodes < 1 || o.callers < 1 || o.rounds < 1 || o.duration <= 0 {
		return errors.New("-size, -nodes, -callers, -rounds and -duration must be positive, and no arguments are accepted")
	}
	o.size, o.rates = *mib<<20, strings.Split(*rates, ",")
	return turns.WithCluster(ctx, cluster.Config{Nodes: o.nodes, Binary: o.binary, Args: []string{"--pprof"}},
		func(c *cluster.Cluster, dir string) error {
			db, err := c.Dial(ctx)
			if err != nil {
				return err
			}
			b := &bench{options: o, cluster: c, db: db, dir: dir}
			return errors.Join(b.measure(ctx), db.Close())
		})
}

func (b *bench) measure(ctx context.Context) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.alone(ctx); err != nil {
		return err
	}
	return b.turns(ctx)
}

// bench is a filled cluster.
type bench struct {
	options
	cluster *cluster.Cluster
	db      *percolator.DB
	dir     string
	rows    int
}

func row(i int) string { return fmt.Sprintf("row/%09d", i) }

// value returns text, which compresses about as well as real data.
func value(r *rand.Rand) []byte {
	out := make([]byte, 0, valueBytes+16)
	for len(out) < valueBytes {
		out = fmt.Appendf(out, "word%d ", r.IntN(1<<16))
	}
	return out[:valueBytes]
}

// fill writes the rows.
func (b *bench) fill(ctx context.Context) error {
	b.rows = int(b.size / valueBytes)
	spec := percolator.TableSpec{Name: column.Table}
	for i := range tablets - 1 {
		spec.SplitKeys = append(spec.SplitKeys, row((i+1)*b.rows/tablets))
	}
	if err := b.db.CreateTable(ctx, spec); err != nil {
		return err
	}
	began := time.Now()
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for from := 0; from < b.rows; from += fillAtOnce {
		group.Go(func() error {
			r := rand.New(rand.NewPCG(1, uint64(from)))
			return b.db.Transact(within, func(_ context.Context, tx *percolator.Tx) error {
				for i := from; i < min(from+fillAtOnce, b.rows); i++ {
					tx.Set(row(i), column, value(r))
				}
				return nil
			})
		})
	}
	err := group.Wait()
	fmt.Printf("%d rows of %d bytes written in %v\n", b.rows, valueBytes,
		time.Since(began).Round(time.Second))
	return err
}

// command returns the command `backup create`. It removes the backups of earlier commands.
func (b *bench) command(ctx context.Context, rate string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.binary, "backup", "create", filepath.Join(b.dir, "backups"), "--restart",
		"--quiet", "--rate", rate, "--addr", b.cluster.Addrs()[0], "-o", "json", "--timeout", "1h")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// alone makes one full backup without a load.
func (b *bench) alone(ctx context.Context) error {
	before, err := b.used()
	if err != nil {
		return err
	}
	began, cmd := time.Now(), b.command(ctx, "0")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("backup create: %w", err)
	}
	took := time.Since(began)
	after, err := b.used()
	if err != nil {
		return err
	}
	var made struct{ Bytes int64 }
	if err := json.Unmarshal(out, &made); err != nil {
		return err
	}
	mib := float64(b.size) / (1 << 20)
	self := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	each := func(d time.Duration) float64 { return d.Seconds() * 1000 / mib }
	fmt.Printf("without load: %.0f MiB in %v, %.0f MiB/s; processor time per MiB: nodes %.1f ms, command %.1f ms; %.0f MiB of files\n",
		mib, took.Round(100*time.Millisecond), mib/took.Seconds(), each(after-before), each(self),
		float64(made.Bytes)/(1<<20))
	return nil
}

// used returns the processor time of all nodes.
func (b *bench) used() (all time.Duration, err error) {
	for _, p := range b.cluster.Nodes() {
		cpu, err := p.CPU()
		if err != nil {
			return 0, err
		}
		all += cpu
	}
	return all, nil
}

// turns measures the load with a backup of each rate, and without one just before. Each round has
// another order of rates, so that the store's periodic work does not always hit the same one.
func (b *bench) turns(ctx context.Context) error {
	ratios := make([][]float64, len(b.rates))
	for range b.rounds {
		for _, i := range rand.Perm(len(b.rates)) {
			rate := b.rates[i]
			without, err := b.load(ctx, b.duration)
			if err != nil {
				return err
			}
			with, err := b.beside(ctx, rate)
			if err != nil {
				return err
			}
			ratios[i] = append(ratios[i], with/without)
			fmt.Printf("--rate %s\t%.0f/s, without %.0f/s\t%.2f\n", rate, with, without, with/without)
		}
	}
	for i, rate := range b.rates {
		fmt.Printf("--rate %s / without\t%s\n", rate, turns.Ratios(ratios[i]))
	}
	return nil
}

// beside measures the load during a backup, which is killed at the end.
func (b *bench) beside(ctx context.Context, rate string) (perSecond float64, err error) {
	within, cancel := context.WithCancel(ctx)
	cmd := b.command(within, rate)
	if err := cmd.Start(); err != nil {
		cancel()
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	if _, err = b.load(ctx, turns.Warmup); err == nil {
		perSecond, err = b.load(ctx, b.duration)
	}
	select {
	case <-ended:
		err = errors.Join(err, errors.New("the backup ended before the measurement: increase -size or decrease -duration"))
		cancel()
	default:
		cancel()
		<-ended
	}
	return perSecond, err
}

// load has the callers read and write rows for the duration.
func (b *bench) load(ctx context.Context, d time.Duration) (perSecond float64, err error) {
	seed, v := uint64(time.Now().UnixNano()), value(rand.New(rand.NewPCG(0, 0)))
	random := make([]*rand.Rand, b.callers)
	for i := range random {
		random[i] = rand.New(rand.NewPCG(uint64(i), seed))
	}
	f, err := turns.Repeat(ctx, b.callers, d, func(ctx context.Context, caller, _ int) error {
		row := row(random[caller].IntN(b.rows))
		return b.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			_, _, err := tx.Get(ctx, row, column)
			tx.Set(row, column, v)
			return err
		})
	})
	return f.PerSecond, err
}

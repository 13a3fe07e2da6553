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
	callers  int
	duration time.Duration
	plan     turns.Plan
}

// The rows that are backed up and that the load reads and writes: bytes of words per row, and
// rows per transaction of the initial load.
const (
	valueBytes = 1000
	fillAtOnce = 64
	tablets    = 16
)

var column = percolator.Column{Table: "bench", Name: "c"}

func main() { turns.Main("backup", run) }

func run(ctx context.Context) error {
	o := options{plan: turns.Plan{
		Columns: []string{"/s"}, Variants: []string{"without", "beside a backup"},
	}}
	only := o.plan.Flags(5)
	build := flag.String("build", "bin", "the folder with the binary percolator")
	mib := flag.Int64("size", 1024, "MiB of values in the cluster")
	rates := flag.String("rates", "8MiB,16MiB,0", "comma-separated rates of the backup, in bytes per second; 0: unlimited")
	nodes := flag.Int("nodes", 1, "number of nodes")
	flag.IntVar(&o.callers, "callers", 64, "number of concurrent callers")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "duration of each measurement")
	flag.Parse()
	folders, _, err := turns.Builds(*build, "percolator")
	if err != nil {
		return err
	}
	if flag.NArg() > 0 || *mib < 1 || *nodes < 1 || o.callers < 1 || o.duration <= 0 {
		return errors.New("-size, -nodes, -callers and -duration must be positive, and no arguments are accepted")
	}
	o.binary, o.size = filepath.Join(folders[0], "percolator"), *mib<<20
	for rate := range strings.SplitSeq(*rates, ",") {
		if name := "--rate " + rate; strings.Contains(name, *only) {
			o.rates, o.plan.Workloads = append(o.rates, rate), append(o.plan.Workloads, name)
		}
	}
	return turns.WithCluster(ctx, cluster.Config{Nodes: *nodes, Binary: o.binary, Args: []string{"--pprof"}},
		func(c *cluster.Cluster, dir string) error {
			db, err := c.Dial(ctx)
			if err != nil {
				return err
			}
			b := &bench{options: o, cluster: c, db: db, dir: dir}
			return errors.Join(b.measure(ctx), db.Close())
		})
}

// measure measures the load with a backup of each rate, and without one just before.
func (b *bench) measure(ctx context.Context) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.alone(ctx); err != nil {
		return err
	}
	b.plan.Measure = func(ctx context.Context, rate, variant int) ([]float64, error) {
		if variant > 0 {
			return b.beside(ctx, b.rates[rate])
		}
		return b.load(ctx)
	}
	return b.plan.Run(ctx, os.Stdout)
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

// alone creates one full backup without a load.
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

// beside measures the load during a backup, which it kills at the end.
func (b *bench) beside(ctx context.Context, rate string) (perSecond []float64, err error) {
	within, cancel := context.WithCancel(ctx)
	cmd := b.command(within, rate)
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	perSecond, err = b.load(ctx)
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

// load makes the callers read and write rows for b.duration, and returns their transactions per
// second.
func (b *bench) load(ctx context.Context) (perSecond []float64, err error) {
	seed, v := uint64(time.Now().UnixNano()), value(rand.New(rand.NewPCG(0, 0)))
	random := make([]*rand.Rand, b.callers)
	for i := range random {
		random[i] = rand.New(rand.NewPCG(uint64(i), seed))
	}
	f, err := turns.Repeat(ctx, b.callers, turns.Warmup, b.duration, func(ctx context.Context, caller, _ int) error {
		row := row(random[caller].IntN(b.rows))
		return b.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			_, _, err := tx.Get(ctx, row, column)
			tx.Set(row, column, v)
			return err
		})
	})
	return []float64{f.PerSecond}, err
}

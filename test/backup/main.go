// Command backup makes backups of a cluster of processes under load and restores them into
// another cluster, while it kills these commands and the nodes of both clusters with -9; the same
// commands, run again, then continue. The restored table must equal the source, read at the
// backup's timestamp, row by row and with commit timestamps: for the last backup, and for a
// timestamp between two. Finally it flips single bits of the backups, each of which
// `backup verify` must find.
//
//	make backup-kill SIZE=1024 DURATION=1m SEED=1
//
// The backup's rate is chosen so that a backup without interruptions takes -duration. The seed
// determines all choices, but not when they take effect. A failed run keeps its directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

type options struct {
	binary   string
	size     int64
	duration time.Duration
	seed     uint64
	nodes    int
	to       int
	strikes  int
	callers  int
}

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
	flag.DurationVar(&o.duration, "duration", time.Minute, "duration of an uninterrupted backup or restore")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of all random choices")
	flag.IntVar(&o.nodes, "nodes", 3, "number of nodes of the source cluster")
	flag.IntVar(&o.to, "to", 1, "number of nodes of the cluster to restore into")
	flag.IntVar(&o.strikes, "strikes", 4, "number of kills during each command: of the command and of a node, alternately")
	flag.IntVar(&o.callers, "callers", 16, "number of concurrent callers of the load")
	flag.Parse()
	if o.binary, err = filepath.Abs(filepath.Join(*build, "percolator")); err != nil {
		return err
	}
	if flag.NArg() > 0 || *mib < 1 || o.duration <= 0 || o.nodes < 1 || o.to < 1 || o.callers < 1 {
		return errors.New("-size, -duration, -nodes, -to and -callers must be positive, and no arguments are accepted")
	}
	o.size = *mib << 20
	dir, err := os.MkdirTemp("", "backup-kill-")
	if err != nil {
		return err
	}
	t := &trial{
		options: o, dir: dir, began: time.Now(), location: filepath.Join(dir, "backups"),
		random: rand.New(rand.NewPCG(o.seed, 0)),
	}
	if err := t.all(ctx); err != nil {
		return fmt.Errorf("%w\nthe files are in %s", err, dir)
	}
	return os.RemoveAll(dir)
}

// trial is one run. Its methods belong to one goroutine; the load has its own.
type trial struct {
	options
	dir      string
	location string
	began    time.Time
	random   *rand.Rand
}

func (t *trial) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts a cluster and connects to it.
func (t *trial) start(ctx context.Context, name string, nodes int) (*cluster.Cluster, *percolator.DB, error) {
	dir := filepath.Join(t.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	c, err := cluster.New(cluster.Config{Nodes: nodes, Dir: dir, Binary: t.binary})
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(ctx); err != nil {
		return c, nil, err
	}
	db, err := c.Dial(ctx)
	return c, db, err
}

// all performs the whole run.
func (t *trial) all(ctx context.Context) (err error) {
	from, db, err := t.start(ctx, "from", t.nodes)
	if from != nil {
		defer func() { err = errors.Join(err, from.Close()) }()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// The source must still be readable at the backups' timestamps at the end.
	if _, err := t.command(ctx, from, "cluster", "set", "history=5h"); err != nil {
		return err
	}
	load, err := t.fill(ctx, db)
	if err != nil {
		return err
	}
	defer load.stop()
	load.begin(ctx)
	full, err := t.backUp(ctx, from)
	if err != nil {
		return err
	}
	between, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	at := []percolator.Timestamp{full, between.StartTS(), 0}
	_ = between.Close()
	if at[2], err = t.backUp(ctx, from, "--incremental"); err != nil {
		return err
	}
	load.stop()
	t.say("the load has done %d transactions, %d failed", load.done.Load(), load.failed.Load())
	return t.restoreAll(ctx, from, db, at)
}

// restoreAll restores the tables as of the timestamps and compares them with the source.
func (t *trial) restoreAll(ctx context.Context, from *cluster.Cluster, db *percolator.DB,
	at []percolator.Timestamp) (err error) {
	var want []digest
	for _, ts := range at {
		d, err := digestAt(ctx, db, tableName, ts)
		if err != nil {
			return err
		}
		t.say("the source has %d cells at %d", len(d.cells), ts)
		want = append(want, d)
	}
	// The cluster to restore into has the processors to itself.
	if err := from.Terminate(30 * time.Second); err != nil {
		return err
	}
	to, restored, err := t.start(ctx, "to", t.to)
	if to != nil {
		defer func() { err = errors.Join(err, to.Close()) }()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restored.Close()) }()
	for i, ts := range at {
		name := fmt.Sprintf("restored%d", i)
		args := []string{
			"restore", t.location, "--quiet", "--rate", t.rate(), "--table", tableName + "=" + name,
			"--at", fmt.Sprint(ts),
		}
		if _, err := t.runUnderFaults(ctx, to, args...); err != nil {
			return err
		}
		got, err := digestNow(ctx, restored, name)
		if err != nil {
			return err
		}
		if err := got.equals(want[i]); err != nil {
			return fmt.Errorf("DIFFERENT: at %d: %w", ts, err)
		}
		t.say("restored as of %d: %d cells, equal to the source", ts, len(got.cells))
	}
	return t.damage(ctx)
}

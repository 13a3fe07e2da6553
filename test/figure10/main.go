// Command figure10 repeats the paper's Figure 10: a cluster under a steady load loses a third of
// its machines at once. Six node processes in three zones, each with a CPU quota, serve workers
// that send transactions continuously; then all nodes of the zone that leads the meta tablet are
// killed (kill -9). It writes the number of commits in each second, and fails if the load does
// not become steady again in time or if an acknowledged write is lost:
//
//	make figure10
//
// It needs root, for the quotas. The plot is a program of its own (test/figure10/plot),
// in a module of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/test/cluster"
)

// The cluster of the figure.
const (
	nodes   = 6
	zones   = 3
	tablets = 24
	// settling bounds the time for spreading replicas and leaders before the measurement.
	settling = 4 * time.Minute
	// checking bounds the final reads.
	checking = 2 * time.Minute
)

// The criterion.
const (
	// steadyWithin is the time after the kill within which the load must be steady again.
	steadyWithin = 10 * time.Second
	// window is the time over which the mean rate is computed.
	window = 5
	// steadyShare is the part of the remaining nodes' capacity that counts as steady.
	steadyShare = 0.8
)

type options struct {
	cpus          float64
	workers       int
	before, after time.Duration
	csv, dir      string
}

func main() {
	cluster.Main(nil)
	var o options
	flag.Float64Var(&o.cpus, "cpus", 0.1, "quota of each node, in CPUs")
	flag.IntVar(&o.workers, "workers", 48, "number of concurrent transactions")
	flag.DurationVar(&o.before, "before", 30*time.Second, "duration of the load before the kill")
	flag.DurationVar(&o.after, "after", 60*time.Second, "duration of the load after the kill")
	flag.StringVar(&o.csv, "csv", "", "file for the figures; empty: standard output")
	flag.StringVar(&o.dir, "dir", "", "directory for the nodes' files; empty: a temporary one, removed on success")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := figure(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "figure10:", err)
		stop()
		os.Exit(1)
	}
}

// figure runs the whole command.
func figure(ctx context.Context, o options) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "figure10-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(o.dir)
			} else {
				err = fmt.Errorf("%w\nthe files are in %s", err, o.dir)
			}
		}()
	}
	c, err := cluster.New(cluster.Config{Nodes: nodes, Zones: zones, Dir: o.dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	l, err := prepare(ctx, c, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	killed, err := measure(ctx, c, l, o)
	if err != nil {
		return err
	}
	if err := write(o, l, killed); err != nil {
		return err
	}
	return errors.Join(judge(l.perSecond(), killed), l.check(ctx))
}

// prepare starts the cluster, creates the table, waits until replicas and leaders are spread, and
// then sets the CPU quotas.
func prepare(ctx context.Context, c *cluster.Cluster, o options) (*load, error) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	l, err := newLoad(ctx, c, o.workers)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.createTable(ctx), spread(ctx, l.dbs[0])); err != nil {
		return nil, errors.Join(err, l.close())
	}
	for _, p := range c.Nodes() {
		if err := p.Quota(o.cpus); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// spread waits until every node has about its share of replicas and leads about its share of
// tablets.
func spread(ctx context.Context, db *percolator.DB) error {
	const replicas, leaders = tablets * 3 / nodes, tablets / nodes
	for {
		r, err := handle.Client(db).Admin().Nodes(ctx, &pb.NodesRequest{})
		even := err == nil && len(r.GetNodes()) == nodes
		for _, n := range r.GetNodes() {
			even = even && n.Replicas+2 >= replicas && n.Leaders+2 >= leaders
		}
		if even {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("replicas are not spread in time: %w\n%v",
				errors.Join(err, ctx.Err()), r.GetNodes())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// measure runs the load, kills the zone during it and returns the time of the kill, since the
// start of the load.
func measure(ctx context.Context, c *cluster.Cluster, l *load,
	o options) (killed time.Duration, err error) {
	began := time.Now()
	l.start(ctx, began)
	defer l.end()
	if err := pause(ctx, o.before); err != nil {
		return 0, err
	}
	zone, err := metaZone(ctx, c, l.dbs[0])
	if err != nil {
		return 0, err
	}
	killed = time.Since(began)
	ended := make(chan error, nodes)
	count := 0
	for i, p := range c.Nodes() {
		if i%zones == zone {
			count++
			go func() { ended <- p.Kill() }() // received below
		}
	}
	for range count {
		err = errors.Join(err, <-ended)
	}
	fmt.Fprintf(os.Stderr, "killed the %d nodes of zone z%d after %s\n", count, zone,
		killed.Round(time.Millisecond))
	return killed, errors.Join(err, pause(ctx, o.after))
}

// metaZone returns the zone of the node that leads meta.
func metaZone(ctx context.Context, c *cluster.Cluster, db *percolator.DB) (int, error) {
	r, err := handle.Client(db).Admin().Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return 0, err
	}
	for _, n := range r.GetNodes() {
		for i, p := range c.Nodes() {
			if n.LeadsMeta && n.Listen == p.Listen {
				return i % zones, nil
			}
		}
	}
	return 0, errors.New("no node reports that it leads meta")
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// write writes the seconds as CSV, with a header that describes the machine and the load.
func write(o options, l *load, killed time.Duration) error {
	out := os.Stdout
	if o.csv != "" {
		f, err := os.Create(filepath.Clean(o.csv))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		out = f
	}
	_, err := fmt.Fprintf(out, "# make figure10: %d nodes in %d zones, %g CPUs each; %d workers, %d tablets; %s/%s, %d CPUs\n# killed_at=%.1f\nsecond,transactions\n",
		nodes, zones, o.cpus, o.workers, tablets, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		killed.Seconds())
	for i, n := range l.perSecond() {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%d,%d\n", i, n)
	}
	return err
}

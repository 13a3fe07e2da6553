// Command cluster measures transactions on a cluster of processes, of one build or of several in
// turns, so that a change can be compared with the previous build on a shared machine. Every
// measurement has a fresh cluster on loopback, in directories that are removed afterwards. The
// clients connect to the node that leads the benchmark's table or, with -elsewhere, to another.
//
//	go run ./bench/cluster -builds bin                        three nodes, one-phase and two-phase
//	go run ./bench/cluster -builds base,bin -rounds 4         in turns; ratios are to the first
//	go run ./bench/cluster -builds bin -followed              writes, with and without a subscriber to their changes
//	go run ./bench/cluster -builds base,bin -hops             where one caller's time goes, by traces
//
// A build is a folder with the binary percolator. Clients are in this process, and the same
// for all builds.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/test/cluster"
)

type options struct {
	nodes     int
	callers   int
	duration  time.Duration
	elsewhere bool
	apart     bool // another node than the other tablets' leads meta, and so runs the oracle
}

// workload is the transaction that callers repeat: it writes fresh cells, reads a cell and writes
// it, or reads a cell that does not exist.
type workload struct {
	name     string
	twoPhase bool
	read     bool
	get      bool
	followed bool // a subscriber in this process follows the table
	several  bool // a second cell, in a tablet that another node leads
}

var workloads = []workload{
	{name: "one-phase"},
	{name: "two-phase", twoPhase: true},
	{name: "read, then write", read: true},
	{name: "get", get: true},
	{name: "two tablets", several: true},
}

// followedWorkloads are measured with -followed: each with and without a subscriber.
var followedWorkloads = []workload{
	{name: "one-phase"},
	{name: "one-phase, followed", followed: true},
	{name: "two-phase", twoPhase: true},
	{name: "two-phase, followed", twoPhase: true, followed: true},
}

var column = percolator.Column{Table: "bench", Name: "c"}

// elsewhere is in a tablet that the second node leads.
var elsewhere = percolator.Column{Table: "elsewhere", Name: "c"}

func main() { turns.Main("cluster", run) }

func run(ctx context.Context) error {
	var o options
	plan := turns.Plan{Columns: []string{"/s", "ms p50", "ms p99", "ms longest"}}
	only := plan.Flags(3)
	builds := flag.String("builds", "bin",
		"comma-separated folders with the binary percolator")
	flag.IntVar(&o.nodes, "nodes", 3, "number of nodes")
	flag.IntVar(&o.callers, "callers", 64, "number of concurrent callers")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "duration of each measurement")
	flag.BoolVar(&o.elsewhere, "elsewhere", false, "connect the clients to a node that leads no tablet")
	hops := flag.Bool("hops", false, "print the median time of each hop of one caller's transactions, by traces")
	followed := flag.Bool("followed", false, "measure writes with and without a subscriber to their changes")
	flag.Parse()
	if flag.NArg() > 0 || o.nodes < 1 || o.callers < 1 || o.duration <= 0 {
		return errors.New("-nodes, -callers and -duration must be positive, and no arguments are accepted")
	}
	folders, names, err := turns.Builds(*builds, "percolator")
	if err != nil {
		return err
	}
	var chosen []workload
	if *followed {
		workloads = followedWorkloads
	}
	for _, w := range workloads {
		if strings.Contains(w.name, *only) {
			chosen, plan.Workloads = append(chosen, w), append(plan.Workloads, w.name)
		}
	}
	if *hops {
		return printHops(ctx, o, chosen, folders, names)
	}
	plan.Variants = names
	plan.Measure = func(ctx context.Context, w, build int) ([]float64, error) {
		f, err := measure(ctx, o, chosen[w], filepath.Join(folders[build], "percolator"))
		return append([]float64{f.PerSecond}, f.Millis(0.5, 0.99, 1)...), err
	}
	return plan.Run(ctx, os.Stdout)
}

func measure(ctx context.Context, o options, w workload, binary string) (f turns.Figure, err error) {
	return f, onCluster(ctx, o, cluster.Config{Binary: binary}, func(c *cluster.Cluster) (err error) {
		first := 0
		if o.elsewhere {
			first = o.nodes - 1
		}
		db, closeDB, err := dial(ctx, c.Addrs()[first], w, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeDB()) }()
		return follow(ctx, c.Addrs()[first], w, func() error {
			f, err = repeat(ctx, db, o, w)
			return err
		})
	})
}

// follow calls f. If w.followed is set, a client of its own follows the table, from before f begins
// until f returns.
func follow(ctx context.Context, addr string, w workload, f func() error) error {
	if !w.followed {
		return f()
	}
	db, closeDB, err := dial(ctx, addr, w, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	followed, begun := make(chan error, 1), make(chan struct{})
	var once sync.Once
	go func() {
		for _, err := range db.Changes(ctx, 0, percolator.Rows(column.Table)) {
			if err != nil {
				followed <- err
				return
			}
			once.Do(func() { close(begun) })
		}
	}()
	select {
	case <-begun:
		err = f()
	case err = <-followed:
		cancel()
		return errors.Join(err, closeDB())
	}
	cancel()
	if ended := <-followed; !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, closeDB())
}

// onCluster calls f with a new cluster that has the table, all replicas, and the leaders that the
// options want.
func onCluster(ctx context.Context, o options, cfg cluster.Config, f func(c *cluster.Cluster) error) error {
	cfg.Nodes = o.nodes
	return turns.WithCluster(ctx, cfg, func(c *cluster.Cluster, _ string) (err error) {
		db, err := c.Dial(ctx)
		if err != nil {
			return err
		}
		err = db.CreateTable(ctx, percolator.TableSpec{Name: column.Table})
		err = errors.Join(err, db.CreateTable(ctx, percolator.TableSpec{Name: elsewhere.Table}))
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
		meta := c.Addrs()[0]
		if o.apart {
			meta = c.Addrs()[o.nodes-1]
		}
		second := c.Addrs()[min(1, o.nodes-1)]
		if err := settle(ctx, cfg.Binary, c.Addrs()[0], meta, second, o.nodes); err != nil {
			return err
		}
		return f(c)
	})
}

// dial returns a client of the node at addr, and a function that closes it.
func dial(ctx context.Context, addr string, w workload, tracer *tracing.Tracer) (*percolator.DB, func() error, error) {
	transport, err := rpc.Dial(ctx, []string{addr}, rpc.ClientConfig{Insecure: true, Tracer: tracer})
	if err != nil {
		return nil, nil, err
	}
	client := txn.NewClient(transport, txn.Config{TwoPhaseOnly: w.twoPhase, Tracer: tracer})
	return handle.NewDB(client), client.Close, nil
}

// settleTimeout bounds the wait for all replicas of the tablets.
const settleTimeout = time.Minute

// metaTablet is the tablet whose leader runs the oracle.
const metaTablet = 1

// settle waits until every tablet has a replica on each node, and moves the leadership of the meta
// tablet to the node at meta, that of the table elsewhere to the node at second, and all others to
// that at addr: the placement of leaders changes rates by a factor of two. It uses the build's own
// command line.
func settle(ctx context.Context, binary, addr, meta, second string, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	others, err := nodeAt(ctx, binary, addr, addr)
	if err != nil {
		return err
	}
	metas, err := nodeAt(ctx, binary, addr, meta)
	if err != nil {
		return err
	}
	seconds, err := nodeAt(ctx, binary, addr, second)
	if err != nil {
		return err
	}
	for {
		out, err := exec.CommandContext(ctx, binary, "tablet", "ls", "-o", "json", "--addr", addr).Output()
		if err != nil {
			return err
		}
		settled := true
		for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
			var t struct {
				ID     uint64   `json:"id"`
				Nodes  []uint64 `json:"nodes"`
				Leader uint64   `json:"leader"`
				Start  struct {
					Table string `json:"table"`
				} `json:"start"`
			}
			if err := lines.Decode(&t); err != nil {
				return err
			}
			leader, to := others, addr
			switch {
			case t.ID == metaTablet:
				leader, to = metas, meta
			case t.Start.Table == elsewhere.Table:
				leader, to = seconds, second
			}
			if len(t.Nodes) < nodes || t.Leader != leader {
				settled = false
			}
			if len(t.Nodes) == nodes && t.Leader != leader {
				// A move that is already in progress is refused, which is harmless.
				_ = exec.CommandContext(ctx, binary, "tablet", "move", fmt.Sprint(t.ID), "--leader",
					"--to", to, "--addr", addr).Run()
			}
		}
		if settled {
			return nil
		}
		if txn.Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("the tablets lack replicas, or are led elsewhere: %s", out)
		}
	}
}

// nodeAt returns the id of the node that serves at of, as the node at addr knows it.
func nodeAt(ctx context.Context, binary, addr, of string) (uint64, error) {
	out, err := exec.CommandContext(ctx, binary, "node", "ls", "-o", "json", "--addr", addr).Output()
	if err != nil {
		return 0, err
	}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var n struct {
			ID     uint64 `json:"node_id"`
			Listen string `json:"listen"`
		}
		if err := lines.Decode(&n); err != nil {
			return 0, err
		}
		if n.Listen == of {
			return n.ID, nil
		}
	}
	return 0, fmt.Errorf("node ls does not show %s", of)
}

// repeat makes the callers run transactions for the duration. Each caller has its own rows, so that
// transactions do not conflict.
func repeat(ctx context.Context, db *percolator.DB, o options, w workload) (turns.Figure, error) {
	return turns.Repeat(ctx, o.callers, turns.Warmup, o.duration, func(ctx context.Context, caller, i int) error {
		row := fmt.Sprintf("row/%03d/%09d", caller, i%100_000)
		return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			if w.get {
				_, _, err := tx.Get(ctx, row, column)
				return err
			}
			if w.read {
				if _, _, err := tx.Get(ctx, row, column); err != nil {
					return err
				}
			}
			tx.Set(row, column, make([]byte, 100))
			if w.several {
				tx.Set(row, elsewhere, make([]byte, 100))
			}
			return nil
		})
	})
}

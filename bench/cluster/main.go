// Command cluster measures transactions on a cluster of processes, of one build or of several in
// turns, so that a change can be compared with the previous build on a shared machine. Every
// measurement has a fresh cluster on loopback, in directories that are removed afterwards. The
// clients' first address is that of the node that leads all tablets or, with -elsewhere, of another.
//
//	go run ./bench/cluster -builds bin                        three nodes, one-phase and two-phase
//	go run ./bench/cluster -builds base,bin -rounds 4         in turns; ratios are to the first
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
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/test/cluster"
)

type options struct {
	nodes     int
	callers   int
	duration  time.Duration
	elsewhere bool
}

// workload is the transaction that callers repeat: it writes fresh cells, reads a cell and writes
// it, or reads a cell that does not exist.
type workload struct {
	name     string
	twoPhase bool
	read     bool
	get      bool
}

var workloads = []workload{
	{name: "one-phase"},
	{name: "two-phase", twoPhase: true},
	{name: "read, then write", read: true},
	{name: "get", get: true},
}

var column = percolator.Column{Table: "bench", Name: "c"}

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
	flag.Parse()
	if flag.NArg() > 0 || o.nodes < 1 || o.callers < 1 || o.duration <= 0 {
		return errors.New("-nodes, -callers and -duration must be positive, and no arguments are accepted")
	}
	folders, names, err := turns.Builds(*builds, "percolator")
	if err != nil {
		return err
	}
	var chosen []workload
	for _, w := range workloads {
		if strings.Contains(w.name, *only) {
			chosen, plan.Workloads = append(chosen, w), append(plan.Workloads, w.name)
		}
	}
	plan.Variants = names
	plan.Measure = func(ctx context.Context, w, build int) ([]float64, error) {
		f, err := measure(ctx, o, chosen[w], filepath.Join(folders[build], "percolator"))
		return append([]float64{f.PerSecond}, f.Millis(0.5, 0.99, 1)...), err
	}
	return plan.Run(ctx, os.Stdout)
}

func measure(ctx context.Context, o options, w workload, binary string) (f turns.Figure, err error) {
	err = turns.WithCluster(ctx, cluster.Config{Nodes: o.nodes, Binary: binary},
		func(c *cluster.Cluster, _ string) (err error) {
			leader, first := c.Addrs()[0], 0
			if o.elsewhere {
				first = o.nodes - 1
			}
			transport, err := rpc.Dial(ctx, c.Addrs()[first:first+1], rpc.ClientConfig{Insecure: true})
			if err != nil {
				return err
			}
			client := txn.NewClient(transport, txn.Config{TwoPhaseOnly: w.twoPhase})
			defer func() { err = errors.Join(err, client.Close()) }()
			db := handle.NewDB(client)
			if err := db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
				return err
			}
			if err := settle(ctx, binary, leader, o.nodes); err != nil {
				return err
			}
			f, err = repeat(ctx, db, o, w)
			return err
		})
	return f, err
}

// settleTimeout bounds the wait for all replicas of the tablets.
const settleTimeout = time.Minute

// settle waits until every tablet has a replica on each node, and moves all leaderships to the
// node at addr, to which the clients connect: the placement of leaders changes rates by a factor
// of two. It uses the build's own command line.
func settle(ctx context.Context, binary, addr string, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	self, err := nodeAt(ctx, binary, addr)
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
			}
			if err := lines.Decode(&t); err != nil {
				return err
			}
			if len(t.Nodes) < nodes || t.Leader != self {
				settled = false
			}
			if len(t.Nodes) == nodes && t.Leader != self {
				// A move that is already in progress is refused, which is harmless.
				_ = exec.CommandContext(ctx, binary, "tablet", "move", fmt.Sprint(t.ID), "--leader",
					"--to", addr, "--addr", addr).Run()
			}
		}
		if settled {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the tablets lack replicas, or are not led by the clients' node: %s", out)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// nodeAt returns the id of the node that serves at addr.
func nodeAt(ctx context.Context, binary, addr string) (uint64, error) {
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
		if n.Listen == addr {
			return n.ID, nil
		}
	}
	return 0, fmt.Errorf("node ls does not show %s", addr)
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
			return nil
		})
	})
}

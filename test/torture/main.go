// Command torture runs all workloads together against a cluster of real processes under
// one fault after the other, and writes what came of it as a table. Every run of a fault
// has a cluster of its own, in network namespaces; it needs root. The fault "soak" is a run
// of package soak on one node without namespaces, and needs no root.
//
//	make torture DURATION=90s SEED=1 ARGS="-faults kill-one,partition-one"
//
// An anomaly, or a replica that differs, ends with exit code 1 and keeps the run's
// directory: what was done when (steps.log), the nodes' logs and data, and the histories
// of workloads that have found something. So does a fault that cannot be carried out
// here, which names what is missing. All choices come from the seed; the moments at which
// they happen do not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/torture/soak"
)

type options struct {
	faults   string
	duration time.Duration
	seed     uint64
	nodes    int
	dir      string
	out      string
	plain    bool
	oneIn    int
	soak     soak.Options // the zero value: its defaults
}

func main() {
	cluster.Main(observers)
	victim() // does not return in a client that is there to be killed
	var o options
	flag.StringVar(&o.faults, "faults", "", "names, with commas between them; empty: all")
	flag.DurationVar(&o.duration, "duration", 90*time.Second, "of the workloads under each fault")
	flag.Uint64Var(&o.seed, "seed", 1, "of all choices")
	flag.IntVar(&o.nodes, "nodes", 3, "that begin the cluster")
	flag.StringVar(&o.dir, "dir", "", "to keep the runs' files in; empty: a temporary one, removed if all is well")
	flag.StringVar(&o.out, "out", "", "a file that the table is written to as well")
	flag.IntVar(&o.oneIn, "one-in", 10, "how many of the default corpus' pages the web index gets: one in this many")
	flag.BoolVar(&o.plain, "insecure", false, "no certificates")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := torture(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		stop()
		os.Exit(1)
	}
}

// torture runs the chosen faults and prints a row for each as soon as there is one.
func torture(ctx context.Context, o options) (err error) {
	chosen, err := choose(o.faults)
	if err != nil {
		return err
	}
	temporary := o.dir == ""
	if temporary {
		if o.dir, err = os.MkdirTemp("", "torture-"); err != nil {
			return err
		}
	}
	var table strings.Builder
	say := func(line string) {
		fmt.Println(line)
		table.WriteString(line + "\n")
	}
	say(header)
	for _, f := range chosen {
		if ctx.Err() != nil {
			break
		}
		result := run(ctx, o, f, filepath.Join(o.dir, f.name))
		say(result.row())
		if wrong := result.all(); wrong != nil {
			fmt.Fprintf(os.Stderr, "torture: %s: %v\n", f.name, wrong)
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, wrong))
		} else if temporary {
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.dir, f.name)))
		}
		if o.out != "" { // after each, for a run of all takes an hour
			err = errors.Join(err, os.WriteFile(o.out, []byte(table.String()), 0o600))
		}
	}
	if err == nil && temporary {
		return os.RemoveAll(o.dir)
	}
	if err != nil {
		err = fmt.Errorf("%w\nthe files are in %s", err, o.dir)
	}
	return err
}

// choose finds the faults by their names.
func choose(names string) ([]fault, error) {
	if names == "" {
		return faults, nil
	}
	var out []fault
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, f := range faults {
			if f.name == name {
				out, found = append(out, f), true
			}
		}
		if !found {
			var all []string
			for _, f := range faults {
				all = append(all, f.name)
			}
			return nil, fmt.Errorf("there is no fault %q; there are: %s", name,
				strings.Join(all, ", "))
		}
	}
	return out, nil
}

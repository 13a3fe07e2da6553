// Command torture runs all workloads concurrently against a cluster of real processes, under
// each fault in turn, and prints a table of the results. Every fault has a cluster of its own,
// in network namespaces; it needs root. The fault "soak" is a run of package soak on one node
// without namespaces, and needs no root.
//
//	make torture DURATION=90s SEED=1 ARGS="-faults kill-one,partition-one -leases both"
//
// An anomaly, a replica that differs, or a fault that cannot be injected on this machine results in
// exit code 1 and keeps the run's directory: the log of steps (steps.log), the nodes' logs and
// data, and the histories of the workloads that found anomalies. The error of a fault that cannot
// be injected names the missing tool. The seed determines all choices, but not when they take
// effect.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/torture/soak"
)

type options struct {
	faults   string
	leases   string // "on", "off" or "both"
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
	victim() // does not return in a process started as the client to be killed
	var o options
	flag.StringVar(&o.faults, "faults", "", "comma-separated names of faults; empty: all")
	flag.StringVar(&o.leases, "leases", "on",
		"leases of leaders during the runs: on, off (as by cluster set leases=off), or both, one run after the other")
	flag.DurationVar(&o.duration, "duration", 90*time.Second, "duration of the workloads under each fault")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of all random choices")
	flag.IntVar(&o.nodes, "nodes", 3, "number of nodes that found the cluster")
	flag.StringVar(&o.dir, "dir", "", "directory for the runs' files; empty: a temporary one, removed on success")
	flag.StringVar(&o.out, "out", "", "file to write the table to, in addition to standard output")
	flag.IntVar(&o.oneIn, "one-in", 10, "the web index loads one in this many pages of the default corpus")
	flag.BoolVar(&o.plain, "insecure", false, "run without certificates")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := torture(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		stop()
		os.Exit(1)
	}
}

// torture runs the chosen faults and prints a row after each.
func torture(ctx context.Context, o options) (err error) {
	chosen, err := choose(o.faults)
	if err != nil {
		return err
	}
	if chosen, err = chooseLeases(chosen, o.leases); err != nil {
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
		if o.out != "" { // after each fault: a run of all takes an hour
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

// chooseLeases returns the faults with the given setting of leases; with "both", each twice.
func chooseLeases(chosen []fault, leases string) (out []fault, err error) {
	if leases != "on" && leases != "off" && leases != "both" {
		return nil, fmt.Errorf("-leases is %q; it must be on, off or both", leases)
	}
	for _, f := range chosen {
		if leases != "off" {
			out = append(out, f)
		}
		if leases != "on" {
			f.name, f.noLeases = f.name+"-without-leases", true
			out = append(out, f)
		}
	}
	return out, nil
}

// choose finds the faults by their names.
func choose(names string) ([]fault, error) {
	if names == "" {
		return faults, nil
	}
	var out []fault
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			var all []string
			for _, f := range faults {
				all = append(all, f.name)
			}
			return nil, fmt.Errorf("unknown fault %q; the faults are: %s", name,
				strings.Join(all, ", "))
		}
		out = append(out, faults[i])
	}
	return out, nil
}

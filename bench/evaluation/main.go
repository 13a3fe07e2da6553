// Command evaluation repeats the measurements of the paper's section 3, and compares with what a
// user would choose instead. Each measurement prints tables, and writes a JSON file with every
// repetition and a plot for each figure.
//
//	go run . -list                        the measurements, and how long each takes
//	go run . -only figure8 -out /tmp/out  one of them
//	go run . -smoke                       a small part of each; the figures mean nothing
//	go run . -only tpce -cpuprofile /tmp  one of them, with a CPU profile of its process
//	make evaluation                       all, into docs/evaluation.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/ablation"
	"github.com/percolator-go/percolator/bench/evaluation/clusterscale"
	"github.com/percolator-go/percolator/bench/evaluation/device"
	"github.com/percolator-go/percolator/bench/evaluation/figure7"
	"github.com/percolator-go/percolator/bench/evaluation/figure8"
	"github.com/percolator-go/percolator/bench/evaluation/gateway"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/evaluation/notify"
	"github.com/percolator-go/percolator/bench/evaluation/oracle"
	"github.com/percolator-go/percolator/bench/evaluation/peers"
	"github.com/percolator-go/percolator/bench/evaluation/peers/cluster"
	"github.com/percolator-go/percolator/bench/evaluation/scale"
	"github.com/percolator-go/percolator/bench/evaluation/tpce"
	"github.com/percolator-go/percolator/bench/turns"
)

// measurements returns all, in the order of docs/evaluation.md.
func measurements() []harness.Measurement {
	return slices.Concat(
		figure7.Measurements(),
		figure8.Measurements(),
		tpce.Measurements(),
		oracle.Measurements(),
		notify.Measurements(),
		ablation.Measurements(),
		peers.Measurements(),
		scale.Measurements(),
		device.Measurements(),
		gateway.Measurements(),
		clusterscale.Measurements(),
	)
}

// options are the flags.
type options struct {
	only     string
	smoke    bool
	rounds   int
	seed     uint64
	out      string
	docs     string
	dir      string
	profiles string
	one      string // the measurement that this process runs, in dir and with binary; "": executeAll
	binary   string
}

func main() {
	tpce.Main() // does not return in a process that is a node of its measurements
	turns.Main("evaluation", run)
}

func run(ctx context.Context) error {
	if served, err := cluster.Member(); served {
		return err
	}
	if of := os.Getenv(peers.Reader); of != "" {
		return peers.ReadChanges(ctx, of, os.Stdin, os.Stdout)
	}
	o := options{}
	list := flag.Bool("list", false, "list the measurements and the time that each takes, and exit")
	flag.StringVar(&o.only, "only", "", "comma-separated names of the measurements to run; default: all")
	flag.BoolVar(&o.smoke, "smoke", false, "run a small part of each, in seconds; the figures mean nothing")
	flag.IntVar(&o.rounds, "rounds", 3, "number of repetitions of each kind, in turns; 1 with -smoke")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of everything random")
	flag.StringVar(&o.out, "out", "out", "folder of the JSON files and plots")
	flag.StringVar(&o.docs, "docs", "", "Markdown file whose marked sections are replaced by the results")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "folder for stores, on a real disk")
	flag.StringVar(&o.profiles, "cpuprofile", "", "folder of a CPU profile of each measurement's process, as NAME.pprof; default: none")
	flag.StringVar(&o.one, "one", "", "used by this program for a process of each measurement")
	flag.StringVar(&o.binary, "binary", "", "folder with the built percolator binary; default: build it")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case o.rounds < 1:
		return fmt.Errorf("-rounds is %d; it must be at least 1", o.rounds)
	case o.smoke && o.docs != "":
		return errors.New("-docs and -smoke: results of -smoke mean nothing")
	}
	selected, err := choose(measurements(), o.only+o.one)
	switch {
	case err != nil:
		return err
	case *list:
		for _, m := range selected {
			fmt.Printf("%-12s %6v  %s\n", m.Name, m.Budget, m.Title)
		}
		return nil
	case o.one != "":
		return execute(ctx, selected[0], o)
	default:
		return executeAll(ctx, selected, o)
	}
}

// choose returns the measurements with the comma-separated names, in the order of the names.
func choose(all []harness.Measurement, names string) (out []harness.Measurement, err error) {
	if names == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(m harness.Measurement) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no measurement %q; -list lists them", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// execute runs one measurement in this process.
func execute(ctx context.Context, m harness.Measurement, o options) error {
	r := &harness.Run{Smoke: o.smoke, Rounds: o.rounds, Seed: o.seed, Dir: o.dir, Binary: o.binary}
	command := []string{
		"go", "run", ".", "-only", m.Name, "-rounds", strconv.Itoa(o.rounds), "-seed", strconv.FormatUint(o.seed, 10),
	}
	if o.smoke {
		r.Rounds = 1
		command = append(command, "-smoke")
	}
	to := harness.Options{Out: o.out, Docs: o.docs, Command: command, Print: os.Stdout}
	if o.docs != "" {
		var err error
		if to.Plots, err = filepath.Rel(filepath.Dir(o.docs), o.out); err != nil {
			return err
		}
	}
	if o.profiles == "" {
		return harness.Execute(ctx, m, r, to)
	}
	return profiled(filepath.Join(o.profiles, m.Name+".pprof"), func() error { return harness.Execute(ctx, m, r, to) })
}

// profiled writes a CPU profile of this process during do to the file.
func profiled(file string, do func() error) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}

// executeAll runs each measurement in a process of its own: none inherits the heap, the goroutines
// or a crash of another.
func executeAll(ctx context.Context, selected []harness.Measurement, o options) (err error) {
	scratch, err := os.MkdirTemp(o.dir, "evaluation-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := os.Chmod(scratch, 0o755); err != nil { // PostgreSQL runs as another user
		return err
	}
	if o.binary == "" {
		o.binary = scratch
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(scratch, "percolator"),
			"github.com/percolator-go/percolator/cmd/node")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build: %w", err)
		}
	}
	var failed []error
	for _, m := range selected {
		if ctx.Err() != nil {
			return errors.Join(append(failed, ctx.Err())...)
		}
		if err := apart(ctx, m, o, filepath.Join(scratch, m.Name)); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.Name, err))
		}
	}
	return errors.Join(failed...)
}

// apart runs a measurement in a process of its own, with dir as its scratch folder. It is
// interrupted if it takes more than a minute and twice its budget.
func apart(ctx context.Context, m harness.Measurement, o options, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	limit := 2*m.Budget + time.Minute
	if o.smoke {
		limit = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	args := []string{
		"-one", m.Name, "-rounds", strconv.Itoa(o.rounds), "-seed", strconv.FormatUint(o.seed, 10), "-out", o.out,
		"-docs", o.docs, "-dir", dir, "-binary", o.binary, "-cpuprofile", o.profiles,
	}
	if o.smoke {
		args = append(args, "-smoke")
	}
	child := exec.CommandContext(ctx, self, args...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	// The child ends what it has started, and writes what it has measured so far.
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = 30 * time.Second
	err = child.Run()
	if ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("measurement %s was interrupted; its limit is %v: %w", m.Name, limit, ctx.Err()))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// Package cluster measures operations on three processes of this build and of etcd, in turns, with a
// client in this process that knows the addresses of all three. The clusters run side by side on
// loopback, in directories that are removed afterwards; both sync every commit. With TLS, clients and
// nodes of both present certificates to each other. A delay of syncs is added by strace to each sync
// of the processes of both, as a slower disk would.
//
// put writes a key without reading it, get reads one (etcd: linearizable), rmw reads a key and
// writes it if it has not changed since, and "two tablets" writes a key in each of two tablets with
// different leaders (etcd: two keys). "fail-over" kills the leader of the keys, in a cluster of its
// own, while 8 callers put: its longest latency is the gap. "fail-over of reads" does the same while
// they get.
package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
)

const (
	nodes = 3
	// keys is the number of keys of each caller.
	keys = 1000
	// failOverCallers is the number of callers whose leader is killed.
	failOverCallers = 8
)

// killing maps the workloads that kill a leader to the operations of their callers.
var killing = map[string]string{failOver: put, failOverGet: get}

var payload = make([]byte, 100)

// operation does one operation on a key.
type operation func(ctx context.Context, key string) error

// subject is a running cluster.
type subject struct {
	operations map[string]operation
	// kill kills the process that leads the keys, with SIGKILL.
	kill func(ctx context.Context) error
}

// variant starts a cluster under conditions and calls do with it.
type variant func(ctx context.Context, under conditions, do func(context.Context, subject) error) error

// conditions are those under which a cluster runs.
type conditions struct {
	tls       bool
	syncDelay time.Duration // added to each sync of each process
}

// Member reports whether this process is a member of a cluster of etcd. If so, it first serves
// until SIGTERM. Run and Main start the members from the executable of their own process, so a
// program that calls them must call Member first.
func Member() (bool, error) {
	member := os.Getenv(memberOf)
	if member == "" {
		return false, nil
	}
	return true, serve(member)
}

// slowDisk is the delay of syncs in the evaluation: a sync takes about as long as on an SSD without
// protection against power loss.
const slowDisk = 2 * time.Millisecond

// Run measures one caller and 64 on this build and etcd, and one caller with slow syncs.
func Run(ctx context.Context, r *harness.Run) (err error) {
	d, callers := 1500*time.Millisecond, "1,64"
	if r.Smoke {
		d, callers = 200*time.Millisecond, "8"
	}
	all, err := workloads(callers, "off", 0)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("strace"); err != nil {
		r.Note("Slow syncs were not measured: strace is missing (Debian: strace).")
	} else if !r.Smoke {
		for _, operation := range []string{put, rmw, two} {
			all = append(all, workload{operation, 1, conditions{syncDelay: slowDisk}})
		}
	}
	variants := []variant{withEtcd, withPercolator(filepath.Join(r.Binary, "percolator"))}
	names := []string{"etcd", "percolator"}
	running := fleet{}
	defer func() { err = errors.Join(err, running.stop()) }()
	results := figures{}
	for range r.Rounds {
		for _, w := range all {
			if r.Smoke && (killing[w.operation] != "" || w.operation == two) || !r.Smoke && w.operation == two && w.callers > 1 {
				continue
			}
			for v, name := range names {
				f, err := running.measure(ctx, variants[v], v, w, d)
				if err != nil {
					return fmt.Errorf("%v, %s: %w", w, name, err)
				}
				results.add(w, v, f)
				r.Value(w.String(), name, "/s", f.PerSecond)
				for _, c := range []struct {
					column string
					at     float64
				}{{"ms p50", 0.5}, {"ms p99", 0.99}, {"ms longest", 1}} {
					r.Value(w.String(), name, c.column, f.Millis(c.at)[0])
				}
			}
		}
	}
	for _, row := range results.rows() {
		for _, value := range results.values(row, 1) {
			r.Ratio("aims", row.title, value, row.aim)
		}
	}
	r.Note("One caller and 64, without TLS; `make bench-etcd` measures with TLS too, and two builds in turns.")
	return nil
}

// Main is the command: it compares builds too.
func Main() { turns.Main("etcd", run) }

// workload is an operation, the number of its concurrent callers, and the conditions.
type workload struct {
	operation string
	callers   int
	conditions
}

func (w workload) String() string {
	s := fmt.Sprintf("%s, %d", w.operation, w.callers)
	if w.tls {
		s += ", TLS"
	}
	if w.syncDelay > 0 {
		s += fmt.Sprintf(", syncs + %v", w.syncDelay)
	}
	return s
}

func run(ctx context.Context) (err error) {
	plan := turns.Plan{Columns: []string{"/s", "ms p50", "ms p99", "ms longest"}, Variants: []string{"etcd"}}
	only := plan.Flags(3)
	builds := flag.String("builds", "../../bin", "comma-separated folders with the binary percolator")
	callers := flag.String("callers", "1,64", "comma-separated numbers of concurrent callers")
	encrypted := flag.String("tls", "off,on", "off, on or both: mutual TLS")
	delay := flag.Duration("sync-delay", 0, "delay added to every sync of each process; needs strace")
	duration := flag.Duration("duration", 5*time.Second, "duration of each measurement")
	flag.Parse()
	folders, names, err := turns.Builds(*builds, "percolator")
	if err != nil {
		return err
	}
	plan.Variants = append(plan.Variants, names...)
	variants := []variant{withEtcd}
	for _, folder := range folders {
		variants = append(variants, withPercolator(filepath.Join(folder, "percolator")))
	}
	all, err := workloads(*callers, *encrypted, *delay)
	if err != nil {
		return err
	}
	var chosen []workload
	for _, w := range all {
		if strings.Contains(w.String(), *only) {
			chosen, plan.Workloads = append(chosen, w), append(plan.Workloads, w.String())
		}
	}
	running := fleet{}
	defer func() { err = errors.Join(err, running.stop()) }()
	results := figures{}
	plan.Measure = func(ctx context.Context, w, v int) ([]float64, error) {
		f, err := running.measure(ctx, variants[v], v, chosen[w], *duration)
		results.add(chosen[w], v, f)
		return append([]float64{f.PerSecond}, f.Millis(0.5, 0.99, 1)...), err
	}
	if err := plan.Run(ctx, os.Stdout); err != nil {
		return err
	}
	return results.print(os.Stdout, plan.Variants)
}

// workloads returns every workload.
func workloads(callers, encrypted string, syncDelay time.Duration) (out []workload, err error) {
	for on := range strings.SplitSeq(encrypted, ",") {
		if on != "on" && on != "off" {
			return nil, fmt.Errorf("-tls: %q is neither on nor off", on)
		}
		for number := range strings.SplitSeq(callers, ",") {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("-callers: %q is no positive number", number)
			}
			for _, name := range []string{put, get, rmw, two} {
				out = append(out, workload{name, n, conditions{on == "on", syncDelay}})
			}
		}
	}
	for _, name := range []string{failOver, failOverGet} {
		out = append(out, workload{name, failOverCallers, conditions{syncDelay: syncDelay}})
	}
	return out, nil
}

// fleet holds the running clusters by variant and conditions.
type fleet map[clusterOf]running

type clusterOf struct {
	variant int
	conditions
}

type running struct {
	subject
	stop func() error
}

// measure measures the workload on the variant's cluster under its conditions, which it starts if
// necessary, or for fail-over on a new one.
func (all fleet) measure(ctx context.Context, with variant, v int, w workload,
	d time.Duration) (f turns.Figure, err error) {
	if operation := killing[w.operation]; operation != "" {
		err = with(ctx, w.conditions, func(ctx context.Context, s subject) (err error) {
			killed := make(chan error, 1)
			timer := time.AfterFunc(turns.Warmup+time.Second, func() { killed <- s.kill(ctx) })
			f, err = repeat(ctx, s.operations[operation], w.callers, max(d, 5*time.Second))
			if timer.Stop() {
				return errors.Join(err, errors.New("the load ended before the leader was killed"))
			}
			return errors.Join(err, <-killed)
		})
		return f, err
	}
	r, ok := all[clusterOf{v, w.conditions}]
	if !ok {
		if r, err = start(ctx, with, w.conditions); err != nil {
			return f, err
		}
		all[clusterOf{v, w.conditions}] = r
	}
	return repeat(ctx, r.operations[w.operation], w.callers, d)
}

func repeat(ctx context.Context, do operation, callers int, d time.Duration) (turns.Figure, error) {
	return turns.Repeat(ctx, callers, turns.Warmup, d, func(ctx context.Context, caller, i int) error {
		return do(ctx, fmt.Sprintf("row/%03d/%06d", caller, i%keys))
	})
}

// start starts a cluster that runs until its stop.
func start(ctx context.Context, with variant, under conditions) (running, error) {
	ctx, cancel := context.WithCancel(ctx)
	ready, done := make(chan subject), make(chan error, 1)
	go func() {
		done <- with(ctx, under, func(ctx context.Context, s subject) error {
			ready <- s
			<-ctx.Done()
			return nil
		})
	}()
	select {
	case s := <-ready:
		return running{s, func() error { cancel(); return <-done }}, nil
	case err := <-done:
		cancel()
		return running{}, err
	}
}

func (all fleet) stop() (err error) {
	for _, r := range all {
		err = errors.Join(err, r.stop())
	}
	return err
}

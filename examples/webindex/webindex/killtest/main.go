// Killtest kills the webindex command (kill -9) at random moments of the load and of the
// indexing, starts it again in the same directory, and requires that in the end its index
// is exactly what the batch program computes, and the full-text index exactly what the
// repository holds:
//
//	go -C examples/webindex/webindex run ./killtest --seeds 20
//
// With --nodes 3 it is a cluster of so many processes, of which the command itself kills
// and restarts some and to which it adds one, at moments that the seed chooses.
//
// Each seed is one fresh node directory and up to three kills. Every other seed crawls an
// edited tree as well. The first failing seed is printed, with the output of its last
// run, and its directory is kept.
package main

import (
	"bytes"
	"context"
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

	"github.com/percolator-go/percolator/examples/webindex/corpus"
)

// A kill that is aimed at a batch of the full-text index looks for it this long, this often.
const (
	aimFor   = 3 * time.Second
	aimEvery = 200 * time.Microsecond
)

type options struct {
	seeds, first uint64
	one, nodes   int
	binary       string
	timeout      time.Duration
}

func main() {
	var o options
	flag.Uint64Var(&o.seeds, "seeds", 20, "how many seeds to try")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.IntVar(&o.one, "one-in", 6, "how many of the default corpus' pages to use: one in this many")
	flag.IntVar(&o.nodes, "nodes", 0, "try a cluster of so many processes instead of one node")
	flag.StringVar(&o.binary, "binary", "", "webindex command to run (default: it is built)")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "longest run of the command")
	flag.Parse()
	os.Exit(start(o))
}

// start returns the exit code: 0 done, 1 failed.
func start(o options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "killtest:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, o options) (err error) {
	work, err := os.MkdirTemp("", "webindex-kill-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(work)
		}
	}()
	if o.binary == "" {
		o.binary = filepath.Join(work, "webindex")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.binary,
			"github.com/percolator-go/percolator/examples/webindex/webindex")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	k := killer{options: o, work: work, pages: filepath.Join(work, "pages")}
	if err := corpus.Sample(ctx, k.pages, o.one); err != nil {
		return err
	}
	try := k.tryCluster
	if o.nodes == 0 {
		try = k.try
		if err := k.calibrate(ctx); err != nil {
			return err
		}
	}
	for seed := o.first; seed < o.first+o.seeds; seed++ {
		if err := try(ctx, seed); err != nil {
			return fmt.Errorf("seed %d, in %s: %w", seed, work, err)
		}
	}
	return nil
}

// killer runs the command again and again, in one directory per seed.
type killer struct {
	options
	work, pages string
	whole       time.Duration // one run that is left alone, edits included
}

func (k *killer) args(dir string, edit bool) []string {
	args := []string{"--exit", "--verify", "--quiet", "--pages", k.pages, "--dir", dir}
	if edit {
		args = append(args, "--edit", "3%")
	}
	return args
}

// calibrate measures a run that is left alone, so that kills come at any of its moments.
func (k *killer) calibrate(ctx context.Context) error {
	began := time.Now()
	out, killed, err := k.command(ctx, k.args(filepath.Join(k.work, "whole"), true), k.timeout, "")
	if err != nil || killed {
		return fmt.Errorf("a run that was left alone failed: %w\n%s", errors.Join(err, ctx.Err()),
			out)
	}
	k.whole = time.Since(began)
	fmt.Printf("a run that is left alone takes %s\n", k.whole.Round(time.Millisecond))
	return os.RemoveAll(filepath.Join(k.work, "whole"))
}

// try kills up to three runs and lets the last one end.
func (k *killer) try(ctx context.Context, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	dir := filepath.Join(k.work, fmt.Sprintf("seed%d", seed))
	edit := seed%2 == 0
	fmt.Printf("seed %d:", seed)
	for range 1 + rng.IntN(3) {
		// Half of the kills come early, where loading goes on.
		after := time.Duration(rng.Int64N(int64(k.whole)))
		if rng.IntN(2) == 0 {
			after /= 5
		}
		aim := ""
		if rng.IntN(3) > 0 {
			aim = filepath.Join(dir+".search", "store", "root.bolt")
		}
		out, killed, err := k.command(ctx, k.args(dir, edit), after, aim)
		if err != nil {
			return fmt.Errorf("before it was to be killed after %s: %w\n%s", after, err, out)
		}
		if !killed {
			fmt.Printf(" done before %s,", after.Round(time.Millisecond))
			continue
		}
		fmt.Printf(" killed after %s,", after.Round(time.Millisecond))
	}
	out, killed, err := k.command(ctx, k.args(dir, edit), k.timeout, "")
	if killed {
		err = fmt.Errorf("still running after %s", k.timeout)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	fmt.Println(" verified;", exports(out))
	return errors.Join(os.RemoveAll(dir), os.RemoveAll(dir+".edited"), os.RemoveAll(dir+".search"))
}

// Of each cluster.
const (
	clusterKills = 3
	clusterAdds  = 1
)

// tryCluster runs the command once, on a cluster whose nodes it kills itself.
func (k *killer) tryCluster(ctx context.Context, seed uint64) error {
	dir := filepath.Join(k.work, fmt.Sprintf("seed%d", seed))
	fmt.Printf("seed %d:", seed)
	args := append(k.args(dir, seed%2 == 0), "--seed", fmt.Sprint(seed),
		"--nodes", fmt.Sprint(k.nodes), "--kills", fmt.Sprint(clusterKills), "--add",
		fmt.Sprint(clusterAdds))
	out, killed, err := k.command(ctx, args, k.timeout, "")
	if killed {
		err = fmt.Errorf("still running after %s", k.timeout)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	fmt.Println(" verified;", lines(out, "meanwhile:"), lines(out, "steps begun again"))
	return errors.Join(os.RemoveAll(dir+".cluster"), os.RemoveAll(dir+".edited"))
}

// exports is what the run's summary says about exports: how many were repeated because of
// the kills.
func exports(out []byte) string { return lines(out, "export:") }

// lines are those of the output that begin with the text.
func lines(out []byte, begin string) string {
	var all []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, begin) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return strings.Join(all, "; ")
}

// command runs webindex and kills it after a while; with aim, then at the first moment
// that the full-text index is written: a batch is about to be durable, and its exports
// are not acknowledged yet. An error is one of the run's own.
func (k *killer) command(ctx context.Context, args []string, after time.Duration,
	aim string) (out []byte, killed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, k.binary, args...) // ends it by SIGKILL
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // received below, whatever happens
	select {
	case err := <-ended:
		return text.Bytes(), false, errors.Join(err, ctx.Err())
	case <-time.After(after):
	}
	for began, before := time.Now(), written(aim); aim != "" && written(aim).Equal(before) &&
		time.Since(began) < aimFor; {
		select {
		case err := <-ended:
			return text.Bytes(), false, errors.Join(err, ctx.Err())
		case <-time.After(aimEvery):
		}
	}
	cancel()
	killed = <-ended != nil // else it had just come to its end
	return text.Bytes(), killed, nil
}

// written is when the full-text index was written last.
func written(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

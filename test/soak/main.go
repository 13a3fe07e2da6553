package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if child() {
		return
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command is the program: it parses arguments, runs, and returns the exit code.
func command(args []string, stdout, stderr io.Writer) int {
	o := options{out: stdout, patience: 10 * lockTTL}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.duration, "duration", 10*time.Minute, "how long")
	flags.Uint64Var(&o.seed, "seed", 1, "of all choices")
	flags.DurationVar(&o.history, "history", 30*time.Second, "that the node keeps")
	flags.IntVar(&o.docs, "docs", 1500, "about how many documents there are")
	flags.DurationVar(&o.every, "every", time.Minute, "between progress lines")
	flags.DurationVar(&o.warm, "warm", 0,
		"before the limits hold; 0: a fifth of the duration, at most 10 minutes")
	flags.IntVar(&o.tablets, "tablets", 24, "no split by command beyond so many tablets")
	flags.Int64Var(&o.memTable, "memtable", 8<<20,
		"bytes of the store's memtable: small, so that it is flushed often")
	flags.IntVar(&o.rest, "rest", 20, "cycles between two rests; 0: only one, at the end")
	flags.StringVar(&o.dir, "dir", "", "to keep the run's files in; empty: a temporary one, removed if all is well")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	if o.warm == 0 {
		o.warm = min(10*time.Minute, o.duration/5)
	}
	temporary := o.dir == ""
	if temporary {
		var err error
		if o.dir, err = os.MkdirTemp("", "percolator-soak-"); err != nil {
			_, _ = fmt.Fprintln(stderr, "soak:", err)
			return 1
		}
	}
	return conduct(context.Background(), o, temporary, stderr)
}

// conduct does a run and tells how it went.
func conduct(ctx context.Context, o options, temporary bool, stderr io.Writer) int {
	_, _ = fmt.Fprintf(o.out, "soak: seed %d, %v, history %v, in %s\n", o.seed, o.duration,
		o.history, o.dir)
	s, err := begin(ctx, o)
	if err == nil {
		err = s.run(ctx)
	}
	if s != nil {
		if closing := s.end(); err == nil && closing != nil {
			err = violation("at the end: %v", closing)
		}
		s.summary()
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "soak: FAILED: %v\nsoak: the step log, the node's log and its directory are in %s\n"+
			"soak: again: make soak DURATION=%v SEED=%d\n", err, o.dir, o.duration, o.seed)
		return 1
	}
	_, _ = fmt.Fprintln(o.out, "soak: no violation")
	if temporary {
		_ = os.RemoveAll(o.dir)
	}
	return 0
}

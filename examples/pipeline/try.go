package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/examples/pipeline/vectors"
	"github.com/percolator-go/percolator/node"
)

// serverConfig configures the services.
type serverConfig struct {
	embedder                embedder.Config
	index                   string // file
	embedderAddr, indexAddr string
}

func (c *serverConfig) flags(flags *flag.FlagSet) {
	flags.DurationVar(&c.embedder.Latency, "latency", 20*time.Millisecond, "latency of the embedder")
	flags.IntVar(&c.embedder.Rate, "rate", 50, "calls per second that the embedder accepts")
	flags.Float64Var(&c.embedder.Failures, "failures", 0.05, "fraction of the embedder's calls that fail")
	flags.StringVar(&c.embedderAddr, "embedder-addr", embedderAddr, "address of the embedder")
	flags.StringVar(&c.indexAddr, "index-addr", indexAddr, "address of the index")
	flags.StringVar(&c.index, "file", "vectors.jsonl", "file of the index")
}

// runServices serves the embedder and the index until a signal.
func runServices(ctx context.Context, call *app.Invocation, cfg serverConfig) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	index, err := vectors.Open(cfg.index)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	bills, embedding, err := serve(ctx, cfg.embedderAddr, embedder.New(cfg.embedder))
	if err != nil {
		return err
	}
	url, indexing, err := serve(ctx, cfg.indexAddr, index.Handler())
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(call.Stdout, "embedder: %s/bill\nindex:    %s/entries\n", bills, url); err != nil {
		return err
	}
	select {
	case err = <-embedding:
	case err = <-indexing:
	}
	return err
}

// try loads and changes documents in a throw-away node and services in this process.
func try(ctx context.Context, call *app.Invocation, cfg serverConfig, verifying bool) (err error) {
	files, err := readStandard(ctx, call.Args)
	if err != nil {
		return err
	}
	kept, gone, err := edit(files)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pipeline-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	index, err := vectors.Open(filepath.Join(dir, "vectors.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	s := &services{sweepEvery: time.Minute}
	if s.embedder, _, err = serve(serving, "127.0.0.1:0", embedder.New(cfg.embedder)); err != nil {
		return err
	}
	if s.index, _, err = serve(serving, "127.0.0.1:0", index.Handler()); err != nil {
		return err
	}
	nodeConfig := node.DefaultConfig()
	nodeConfig.Dir, nodeConfig.Observers = filepath.Join(dir, "node"), s.register
	nodeConfig.Listen, nodeConfig.HTTP, nodeConfig.Insecure = "127.0.0.1:0", "", true
	n, err := node.Open(ctx, nodeConfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	db := n.DB()
	if err := s.settle(ctx, call, db, verifying, func() error {
		changed, err := load(ctx, db, files)
		return errors.Join(err, note(call, "load %d documents", changed))
	}); err != nil {
		return err
	}
	return s.settle(ctx, call, db, verifying, func() error {
		for _, path := range gone {
			if err := remove(ctx, db, path); err != nil {
				return err
			}
		}
		changed, err := load(ctx, db, kept)
		return errors.Join(err, note(call, "change %d documents, delete %d", changed, len(gone)))
	})
}

func note(call *app.Invocation, format string, args ...any) error {
	_, err := fmt.Fprintf(call.Stdout, format+"\n", args...)
	return err
}

// settle makes changes, waits until the index is in step, and prints what that took and cost.
func (s *services) settle(ctx context.Context, call *app.Invocation, db *percolator.DB, verifying bool,
	change func() error) error {
	began := time.Now()
	if err := errors.Join(change(), db.WaitIdle(ctx)); err != nil {
		return err
	}
	took := time.Since(began)
	b, err := s.bill(ctx)
	if err != nil {
		return err
	}
	if err := note(call, "  settled after %v\n  so far %d texts paid for, %d distinct, by %d calls: "+
		"%d refused, %d failed, %d answers lost; %d texts recognized by their keys",
		took.Round(time.Millisecond), b.Paid, b.Distinct, b.Calls, b.Refused, b.Failed, b.Lost,
		b.Repeated); err != nil || !verifying {
		return err
	}
	return db.View(ctx, func(ctx context.Context, r *percolator.Snapshot) error {
		got, err := s.verify(ctx, r)
		if err != nil {
			return err
		}
		return note(call, "  verified: %v", got)
	})
}

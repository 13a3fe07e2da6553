package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/worker"
)

// The observer of the clustering in a process of its own (docs/adr/0073).

// apart marks the process that runs the observer; its value has the node's address, the numbers of
// concurrent runs, of documents per run, and of all documents.
const apart = "PERCOLATOR_BENCH_APART"

// apartProcess is the process that runs the observer. It ends when its standard input does, and
// then prints its figures.
type apartProcess struct {
	*turns.Child

	once sync.Once
	err  error
	ran  int
	p50  time.Duration
}

// startApart starts the process and returns once the node has accepted its observer.
func startApart(ctx context.Context, n *node.Node, workers, batch, count int) (*apartProcess, error) {
	c, err := turns.StartChild(ctx, fmt.Sprintf("%s=%s %d %d %d", apart, n.Addr(), workers, batch, count))
	if err != nil {
		return nil, err
	}
	var ready string
	if _, err := fmt.Fscanln(c.Out, &ready); err != nil {
		return nil, fmt.Errorf("the worker has not started: %w", err)
	}
	return &apartProcess{Child: c}, nil
}

// end ends the process and reads its figures.
func (p *apartProcess) end() error {
	p.once.Do(func() {
		_ = p.In.Close()
		if _, p.err = fmt.Fscanln(p.Out, &p.ran, &p.p50); p.err == nil {
			p.err = p.Wait()
		}
	})
	return p.err
}

// runApart runs the observer until in ends.
func runApart(ctx context.Context, of string, in io.Reader, out io.Writer) error {
	var addr string
	var workers, batch, count int
	if _, err := fmt.Sscan(of, &addr, &workers, &batch, &count); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	took := make(latencies, 2*count)
	err := worker.Run(ctx, []string{addr}, took.clustering(batch), worker.Config{
		Client: percolator.ClientConfig{Insecure: true}, Workers: workers,
		Ready: func() { _, _ = fmt.Fprintln(out, "ready") },
	})
	if err != nil {
		return err
	}
	ran, p50 := took.result()
	_, err = fmt.Fprintln(out, ran, int64(p50))
	return err
}

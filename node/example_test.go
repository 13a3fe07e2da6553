package node_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// A program with its own command line: the node serves until SIGTERM drains it.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Insecure = "data", true
	cfg.Observers = func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: "people"})
	}
	if err := node.Run(ctx, cfg); err != nil {
		log.Print(err)
	}
}

func ExampleBatchConfig() {
	cfg := node.DefaultConfig()
	cfg.Batch.Tablet = node.BatchConfig{MaxMessages: 256, Linger: time.Millisecond}
	fmt.Println(cfg.Batch.Tablet.MaxMessages, cfg.Batch.Tablet.Linger)
	// Output: 256 1ms
}

// A program with an embedded node that writes nothing to disk.
func ExampleOpen() {
	ctx := context.Background()
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "", true, true
	n, err := node.Open(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = n.DB().CreateTable(ctx, percolator.TableSpec{Name: "people"})
	fmt.Println(err, n.State().LeadsMeta)
	fmt.Println(n.Close(ctx))
	// Output:
	// <nil> true
	// <nil>
}

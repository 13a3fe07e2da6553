package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/percolator-go/percolator/node"
)

// childEnv holds a child's order as JSON; a process that has it set is a child.
const childEnv = "PERCOLATOR_SOAK_CHILD"

// order tells a child process what it is.
type order struct {
	// Dir and Listen are a node's.
	Dir, Listen string
	History     time.Duration
	MemTable    int64
	// Client is the address that a client connects to; empty: the child is a node.
	Client string
	Seed   uint64
}

// child runs this process as a child if it is one, and says so.
func child() bool {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return false
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	switch {
	case err != nil:
	case o.Client != "":
		err = doomedClient(o)
	default:
		err = serve(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak child:", err)
		os.Exit(1)
	}
	return true
}

// serve runs a node until its standard input ends. Lines on it are commands: "gc" frees
// what can be freed, so that the figures that follow are of what is held.
func serve(o order) error {
	ctx := context.Background()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = o.Dir, o.Listen, "127.0.0.1:0", true
	cfg.History, cfg.Store.MemTableSize, cfg.Store.MinFreeBytes = o.History, o.MemTable, 64<<20
	cfg.LockTTL = lockTTL
	// Small tablets, so that they are split by themselves, and not too many.
	cfg.Splits.MaxBytes, cfg.Splits.MaxTablets, cfg.Splits.Interval = 1<<20, maxTablets,
		5*time.Second
	cfg.Observers = register(o.History)
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelWarn}))
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Println("ready", n.HTTPAddr())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		runtime.GC()
		debug.FreeOSMemory()
		fmt.Println("done")
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return n.Close(ctx)
}

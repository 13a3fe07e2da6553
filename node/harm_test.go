package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
)

// harmful maps names to observers that break the rules for observers.
func harmful(release <-chan struct{}) map[string]percolator.ObserverFunc {
	big := make([]byte, 1<<20)
	return map[string]percolator.ObserverFunc{
		"panics": func(context.Context, *percolator.Tx, percolator.Notification) error {
			panic("a bug")
		},
		"goes": func(context.Context, *percolator.Tx, percolator.Notification) error {
			runtime.Goexit()
			return nil
		},
		"blocks": func(context.Context, *percolator.Tx, percolator.Notification) error {
			<-release
			return nil
		},
		// ignores its context
		"spins": func(context.Context, *percolator.Tx, percolator.Notification) error {
			for {
				select {
				case <-release:
					return nil
				case <-time.After(time.Millisecond):
				}
			}
		},
		"bytes": func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			for i := range 4096 { // 4 GiB if it were retained
				tx.Set(fmt.Sprint(n.Row, i), percolator.Column{Table: "pages", Name: "heap"}, big)
			}
			return nil
		},
		"value": func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			tx.Set(n.Row, percolator.Column{Table: "pages", Name: "heap"}, make([]byte, 9<<20))
			return nil
		},
		"cells": func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			for i := range 1_000_000 {
				tx.Set(n.Row+strconv.Itoa(i), percolator.Column{Table: "pages", Name: "heap"}, nil)
			}
			return nil
		},
	}
}

// latencies records the waits of the good observer's rows, from the write's return to the run.
type latencies struct {
	mu   sync.Mutex
	ran  map[string]chan struct{}
	took []time.Duration
}

func (l *latencies) run(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.ran[n.Row]; c != nil {
		close(c)
		delete(l.ran, n.Row)
	}
	return nil
}

// measure writes rows one after another and returns the 99th percentile of their waits.
func (l *latencies) measure(t *testing.T, db *percolator.DB, rows int) time.Duration {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	l.took = nil
	for i := range rows {
		ran := make(chan struct{})
		l.mu.Lock()
		l.ran[rowOf(i)] = ran
		l.mu.Unlock()
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(rowOf(i), input, []byte("x"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		select {
		case <-ran:
		case <-ctx.Done():
			t.Fatalf("row %d was not run for", i)
		}
		l.took = append(l.took, time.Since(began))
	}
	slices.Sort(l.took)
	return l.took[rows*99/100]
}

// feed changes each observer's column twice a second until the returned function is called.
func feed(n *node.Node, bad map[string]percolator.ObserverFunc) (end func()) {
	stop := make(chan struct{})
	var load sync.WaitGroup
	for name := range bad {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(500 * time.Millisecond):
				}
				_ = n.DB().Transact(context.Background(),
					func(_ context.Context, tx *percolator.Tx) error {
						tx.Set(fmt.Sprint("bad/", i), percolator.Column{Table: "pages", Name: name},
							[]byte("x"))
						return nil
					})
			}
		})
	}
	return func() {
		close(stop)
		load.Wait()
	}
}

// TestBadObserversHarmNobody: observers that panic, end their goroutine, block forever, ignore
// their context, or write without end are abandoned with an error that says why; another observer
// does not wait for them, and memory is bounded. The status counts functions that never return.
func TestBadObserversHarmNobody(t *testing.T) {
	release := make(chan struct{})
	good := &latencies{ran: map[string]chan struct{}{}}
	bad := harmful(release)
	n := open(t, "", func(c *node.Config) {
		quick(c)
		c.Logger = slog.New(slog.DiscardHandler)
		c.Observers = func(r *percolator.Registry) {
			r.Strong("good", input, good.run)
			for name, fn := range bad {
				// work that is merely slow is not abandoned
				deadline := 20 * time.Second
				if name == "blocks" || name == "spins" {
					deadline = 200 * time.Millisecond
				}
				r.Strong(name, percolator.Column{Table: "pages", Name: name}, fn,
					percolator.MaxAttempts(2), percolator.Deadline(deadline),
					percolator.Concurrency(3))
			}
		}
	})
	t.Cleanup(func() { close(release) })
	const rows = 100
	before := good.measure(t, n.DB(), rows)
	stop := feed(n, bad)
	// A cell whose function never returns stays with its run: it is counted, not run again.
	eventually(t, "each has parked something, or is stuck", func() bool {
		for name := range bad {
			if s := stateOf(t, n, name); s.Parked == 0 && s.Status.Stuck == 0 {
				return false
			}
		}
		return true
	})
	during := good.measure(t, n.DB(), rows)
	stop()
	t.Logf("wait for the good observer, 99th of a hundred: %v alone, %v beside bad ones", before,
		during)
	// their CPU is shared; the good observer must not wait for one of them to return
	if during > 5*time.Second {
		t.Errorf("the good observer waits %v beside bad ones, %v alone", during, before)
	}
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	if mem.HeapAlloc > 1<<30 {
		t.Errorf("the heap holds %d MiB", mem.HeapAlloc>>20)
	}
	for _, name := range []string{"blocks", "spins"} {
		// each slot is replaced once
		if s := stateOf(t, n, name); s.Status.Stuck == 0 || s.Status.Stuck > 6 {
			t.Errorf("the observer is %v, want 1 to 6 stuck runs", s)
		}
	}
	for name, want := range map[string]string{
		"panics": "panic: a bug", "goes": "Goexit", "bytes": "over the limit",
		"value": "over the limit", "cells": "over the limit",
	} {
		eventually(t, name+" is given up because of "+want, func() bool {
			return parkedBecause(t, n, name, want)
		})
	}
	if s := stateOf(t, n, "good"); s.Status.Failures != 0 || s.Status.Commits != 2*rows {
		t.Errorf("the observer is %v, want 2*rows commits and no failure", s)
	}
}

// parkedBecause reports whether a notification of the observer is parked with such an error.
func parkedBecause(t *testing.T, n *node.Node, name, text string) bool {
	t.Helper()
	info := stateOf(t, n, name).Info
	for e, err := range handle.Client(n.DB()).WalkColumn(within(t, time.Minute), mvcc.GroupNotify,
		wire.NotifyColumn(info)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Notify.ParkedTs != 0 && strings.Contains(e.Notify.Error, text) {
			return true
		}
	}
	return false
}

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/test/workload"
)

const (
	// probers is the number of concurrent callers, which write as an application does.
	probers = 4
	// callerPatience is the timeout of a prober's transaction.
	callerPatience = 10 * time.Second
	probeEvery     = 50 * time.Millisecond
)

// probed is the probers' result.
type probed struct {
	// the longest time that one of them had to wait from one success to the next
	gap      time.Duration
	failed   int // transactions that failed, mostly because they took longer than callerPatience
	examples []error
}

// probe makes callers write cells of all tablets in rotation until ctx ends.
func probe(ctx context.Context, a *arena, db *percolator.DB) (all probed) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for caller := range probers {
		wg.Go(func() {
			one := probeOne(ctx, a, db, caller)
			mu.Lock()
			defer mu.Unlock()
			all.gap = max(all.gap, one.gap)
			all.failed += one.failed
			all.examples = append(all.examples, one.examples...)
		})
	}
	wg.Wait()
	return all
}

func probeOne(ctx context.Context, a *arena, db *percolator.DB, caller int) (p probed) {
	column := percolator.Column{Table: workload.Table, Name: "probe"}
	last := time.Now()
	for i := caller * 7; ctx.Err() == nil; i++ {
		row, began := fmt.Sprintf("%02x/probe/%d", i*37%256, caller), time.Now()
		patient, cancel := context.WithTimeout(ctx, callerPatience)
		err := db.Transact(patient, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row, column, []byte("x"))
			return nil
		})
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			p.failed++
			p.examples = append(p.examples[:min(len(p.examples), 2)], err)
			a.log("caller %d: row %s failed after %v: %v", caller, row, time.Since(began), err)
		default:
			if waited := time.Since(began); waited > 3*time.Second {
				a.log("caller %d: row %s took %v", caller, row, waited)
			}
			p.gap, last = max(p.gap, time.Since(last)), time.Now()
		}
		_ = txn.Sleep(ctx, probeEvery)
	}
	p.gap = max(p.gap, time.Since(last))
	return p
}

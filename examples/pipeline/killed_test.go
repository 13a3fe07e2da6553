package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

// The URLs of the services, in the environment of the test's nodes.
const (
	embedderEnv = "PIPELINE_TEST_EMBEDDER"
	indexEnv    = "PIPELINE_TEST_INDEX"
)

// TestMain runs this program as a node of the test's cluster if it was started as one.
func TestMain(m *testing.M) {
	s := &services{embedder: os.Getenv(embedderEnv), index: os.Getenv(indexEnv), sweepEvery: time.Second}
	cluster.Main(s.register)
	os.Exit(m.Run())
}

// TestKilledNode kills -9 one of three nodes while documents are loaded and their vectors bought,
// and changes and deletes documents before it returns. In the end, the index equals a computation
// from scratch and has no tombstones. No text is paid for twice, and texts are sent to the embedder
// again, under the same keys, only where the guide says so: for calls whose answer was lost or in
// flight at the kill.
func TestKilledNode(t *testing.T) {
	if testing.Short() {
		t.Skip("three nodes, for 10 s")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	o := startOutside(t, embedder.Config{Latency: 20 * time.Millisecond, Rate: 30, Failures: 0.05})
	c := clustertest.Start(ctx, t, cluster.Config{
		Nodes: 3, Env: []string{embedderEnv + "=" + o.embedder, indexEnv + "=" + o.index},
	})
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	clustertest.Replicated(ctx, t, db, 7) // meta and the tables
	await(ctx, t, "the sweeps", func() error { return o.jobs().Start(ctx, db) })

	all := files(t, "net/http", "strings")
	kept, gone, err := edit(all)
	if err != nil {
		t.Fatal(err)
	}
	var loading sync.WaitGroup
	loading.Go(func() {
		await(ctx, t, "the load", func() error {
			_, err := load(ctx, db, all)
			return err
		})
	})
	await(ctx, t, "the first texts", func() error {
		if paid := o.embedding.Bill().Paid; paid < 300 { // of some 1,500
			return fmt.Errorf("%d texts were paid for", paid)
		}
		return nil
	})
	if err := c.Node(1).Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed a node: %+v", o.embedding.Bill())
	loading.Wait()
	await(ctx, t, "the change", func() error {
		for _, path := range gone {
			if err := remove(ctx, db, path); err != nil {
				return err
			}
		}
		_, err := load(ctx, db, kept)
		return err
	})
	if err := c.Node(1).Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "all observers", func() error { return db.WaitIdle(ctx) })
	var got result
	await(ctx, t, "the last sweep", func() error {
		if got, err = o.verifyNow(t, db); err != nil {
			t.Fatal(err) // tombstones do not affect it
		}
		if got.tombstones > 0 {
			return fmt.Errorf("%d tombstones are left", got.tombstones)
		}
		return nil
	})
	bill := o.embedding.Bill()
	t.Logf("%v; %+v", got, bill)
	if bill.Paid != bill.Distinct {
		t.Errorf("%d texts paid for, %d distinct", bill.Paid, bill.Distinct)
	}
	// Of all nodes at the kill: the death of one may also fail the runs of others.
	inFlight := 3 * callsAtOnce
	if most := (bill.Lost + inFlight) * embedder.MaxTexts; bill.Repeated > most {
		t.Errorf("%d texts were sent again under their keys, want at most %d", bill.Repeated, most)
	}
}

// await repeats do until it succeeds.
func await(ctx context.Context, t *testing.T, what string, do func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}

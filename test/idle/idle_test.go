package idle_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

const (
	// limit bounds the processor time of all processes together, in percent of one core.
	limit = 5.0
	// settling bounds the time until all tablets have their replicas and are quiescent, calm is
	// the time without a change that proves it.
	settling = 10 * time.Minute
	calm     = 20 * time.Second
	pollRest = 5 * time.Second
	// splitsAtOnce is the number of split keys per request.
	splitsAtOnce = 50
)

// TestIdle: a cluster without requests uses at most limit of CPU, without tablets and with TABLETS
// (1,000) of them, as measured over DURATION (60s). NODES=1 is a single node, OBSERVERS=1 makes
// every node run observers of the tablets' table. PROFILES names a folder for profiles of each
// process, which are taken after the measurement.
func TestIdle(t *testing.T) {
	if os.Getenv("IDLE") == "" {
		t.Skip("minutes, and it means nothing on a busy machine; make idle runs it")
	}
	nodes, tablets := number(t, "NODES", 3), number(t, "TABLETS", 1000)
	during, err := time.ParseDuration(or("DURATION", "60s"))
	if err != nil {
		t.Fatal(err)
	}
	folder := os.Getenv("PROFILES")
	c := start(t, nodes, folder)
	for _, count := range []int{0, tablets} {
		if count > 0 {
			makeTablets(t, c, count)
		}
		atRest(t, c, count)
		total := measure(t, c, count, during)
		if total > limit {
			t.Errorf("%d idle tablets on %d nodes: %.2f%% of a core in all, and %.0f%% is the limit", count, nodes, total, limit)
		}
		if folder != "" {
			takeProfiles(t, c, during)
		}
	}
}

func or(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(or(name, strconv.Itoa(otherwise)))
	if err != nil || n < 0 {
		t.Fatalf("%s is no number: %v", name, err)
	}
	return n
}

func start(t *testing.T, nodes int, folder string) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := cluster.Config{Nodes: nodes, TLS: true}
	if folder != "" {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		cfg.Env = []string{profiles + "=" + folder}
	}
	if os.Getenv("OBSERVERS") != "" {
		cfg.Env = append(cfg.Env, observed+"=1")
	}
	return clustertest.Start(ctx, t, cfg)
}

// makeTablets creates a table with the given number of tablets, and closes its client.
func makeTablets(t *testing.T, c *cluster.Cluster, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settling)
	defer cancel()
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	began := time.Now()
	spec := percolator.TableSpec{Name: table}
	for i := 1; i <= count; i++ {
		if i < count {
			spec.SplitKeys = append(spec.SplitKeys, fmt.Sprintf("%06d", i))
		}
		if len(spec.SplitKeys) < splitsAtOnce && i < count {
			continue
		}
		// A client waits for some seconds; a partial creation is continued.
		for err := db.CreateTable(ctx, spec); err != nil; err = db.CreateTable(ctx, spec) {
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		spec.SplitKeys = nil
	}
	t.Logf("%d tablets made in %v", count, time.Since(began).Round(100*time.Millisecond))
}

// atRest waits until every tablet has a replica on each node, one of them a leader, all are
// quiescent, and none of that has changed for calm.
func atRest(t *testing.T, c *cluster.Cluster, tablets int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settling)
	defer cancel()
	tick := time.NewTicker(pollRest)
	defer tick.Stop()
	var before standing
	began := time.Now()
	for since := began; ; {
		now, err := stand(ctx, c)
		switch {
		case err != nil || now != before || !now.still(tablets, len(c.Nodes())):
			since = time.Now()
		case time.Since(since) >= calm:
			t.Logf("at rest after %v: %+v", time.Since(began).Round(time.Second), now)
			return
		}
		before = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d tablets are not at rest: %+v, %v", tablets, now, err)
		}
	}
}

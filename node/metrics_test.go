package node_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/worker"
)

// seriesOf returns the families of which the node exports a series.
func seriesOf(ctx context.Context, t *testing.T, n *node.Node) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for name := range series(ctx, t, n) {
		name, _, _ = strings.Cut(name, "{")
		out[name] = true
		out[strings.TrimSuffix(name, "_bucket")] = true
	}
	return out
}

// TestEveryMetricIsExported: every declared metric, and so every one in the reference, is exported
// by a node with certificates, a disk, other nodes' listeners, an observer and a remote client.
func TestEveryMetricIsExported(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	folder := certstest.Folder(t, "127.0.0.1")
	n := open(t, t.TempDir(), func(cfg *node.Config) {
		cfg.Logger = slog.New(slog.DiscardHandler)
		cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Certs = "127.0.0.1:0", "127.0.0.1:0", false, folder
		cfg.Store.InMemory, cfg.Gateway = false, "127.0.0.1:0"
		cfg.Observers = func(r *percolator.Registry) { r.Strong("counter", input, counts) }
	})
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(working, []string{n.Addr()}, func(r *percolator.Registry) { r.Strong("counter", input, counts) },
			worker.Config{Client: percolator.ClientConfig{
				CertFile: filepath.Join(folder, "client.crt"), KeyFile: filepath.Join(folder, "client.key"),
				CAFile: filepath.Join(folder, "ca.crt"), Logger: slog.New(slog.DiscardHandler),
			}})
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error("the worker: ", err)
		}
	}()
	write(t, n.DB(), 0, 10)
	if err := n.DB().WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	remote, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{
		CertFile: filepath.Join(folder, "client.crt"), KeyFile: filepath.Join(folder, "client.key"),
		CAFile: filepath.Join(folder, "ca.crt"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remote.Close() }()
	write(t, remote, 10, 20)
	if _, err := handle.Client(remote).Admin().Backfill(ctx, &pb.BackfillRequest{
		Name: "counter", Action: pb.BackfillRequest_ACTION_START,
	}); err != nil {
		t.Fatal(err)
	}
	orderBackups(ctx, t, n, &pb.BackupSchedulesRequest{Set: &pb.BackupSchedule{
		Name: "nightly", Location: t.TempDir(), EveryMs: 3600_000,
	}})
	var missing []string
	defer func() {
		if t.Failed() {
			t.Log("never exported:", missing)
		}
	}()
	awaitTrue(ctx, t, "every metric is exported", func() bool {
		there := seriesOf(ctx, t, n)
		missing = slices.DeleteFunc(node.MetricNames(), func(name string) bool { return there[name] })
		return len(missing) == 0
	})
}

// TestMetricsOfFeeds: what a subscriber receives is in the metrics.
func TestMetricsOfFeeds(t *testing.T) {
	ctx := within(t, time.Minute)
	n := open(t, "", func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: input.Table}); err != nil {
		t.Fatal(err)
	}
	received, written := 0, false
	for c, err := range n.DB().Changes(ctx, 0, percolator.Rows(input.Table)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case c.Resolved == 0:
			received++
		case !written: // the initial state, which is empty
			write(t, n.DB(), 0, 10)
			written = true
		}
		if c.Resolved != 0 && received == 10 {
			break
		}
	}
	text := series(ctx, t, n)
	for name, least := range map[string]float64{
		"percolator_feed_answers_total": 1, "percolator_feed_changes_total": 10,
		"percolator_feed_sent_bytes_total": 10, "percolator_feed_lag_seconds_count": 1,
	} {
		if text[name] < least {
			t.Errorf("%s is %v; %d changes were received", name, text[name], received)
		}
	}
}

// TestNamesDoNotBreakMetrics: programs choose the names of transactions, and any name is exported,
// within bounds.
func TestNamesDoNotBreakMetrics(t *testing.T) {
	ctx := within(t, time.Minute)
	n := open(t, "", func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	for _, name := range []string{"\xff\xfe", strings.Repeat("long", 1<<18), "a\"b\n{}", "\x00"} {
		err := n.DB().Transact(ctx, func(context.Context, *percolator.Tx) error { return nil },
			percolator.Name(name))
		if err != nil {
			t.Fatal(err)
		}
	}
	named := 0
	for name := range series(ctx, t, n) {
		if len(name) > 1000 {
			t.Errorf("a series of %d bytes", len(name))
		}
		if strings.HasPrefix(name, "percolator_txn_named_seconds_count") {
			named++
		}
	}
	if named != 4 {
		t.Errorf("%d names of 4 are there", named)
	}
}

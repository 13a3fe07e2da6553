package feedkafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

var column = percolator.Column{Table: "t", Name: "c"}

// TestEachOnce: Publish is ended again and again while rows are written. In the end each commit is
// among the committed records of the topic once, and those of a row in order.
func TestEachOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "changes"), kfake.SeedTopics(1, "positions"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brokers.Close)
	db := percolatortest.Start(t, nil).DB()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Brokers: brokers.ListenAddrs(), Topic: "changes", Positions: "positions", Name: "p", Subscription: "kafka",
		CommitEvery: 20 * time.Millisecond,
	}
	want, last := map[percolator.Timestamp]string{}, percolator.Timestamp(0)
	for round := range 5 {
		publishing, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			for {
				err := Publish(publishing, db, cfg, percolator.Rows("t"))
				if publishing.Err() != nil {
					done <- err
					return
				}
				t.Log("Publish is called again after: ", err)
			}
		}()
		for i := range 40 {
			row := fmt.Sprint(rand.IntN(10))
			err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(row, column, fmt.Appendf(nil, "%d/%d", round, i))
				return nil
			}, percolator.CommittedAt(&last))
			if err != nil {
				t.Fatal(err)
			}
			want[last] = fmt.Sprintf("%s=%d/%d", row, round, i)
			if i == 20 || (i == 39 && round == 4) {
				awaitPosition(ctx, t, cfg, last)
			}
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("Publish returns %v after its context was cancelled", err)
		}
	}
	got := read(ctx, t, cfg, want)
	for at, change := range want {
		if got[at] != change && got[at] != "" {
			t.Errorf("the commit of %s at %d is %q in the topic", change, at, got[at])
		}
	}
}

// awaitPosition waits until the stored position is not below at.
func awaitPosition(ctx context.Context, t *testing.T, cfg Config, at percolator.Timestamp) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		position, err := storedPosition(ctx, cfg)
		if err == nil && position >= at {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the last commit is not in the topic: ", err)
		}
	}
}

// read reads the committed records until it has the last of the wanted changes of each row.
func read(ctx context.Context, t *testing.T, cfg Config,
	want map[percolator.Timestamp]string) (got map[percolator.Timestamp]string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumeTopics(cfg.Topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	left, initial := map[percolator.Timestamp]bool{}, map[percolator.Timestamp]bool{}
	for at := range want {
		left[at] = true
	}
	got = map[percolator.Timestamp]string{}
	rows := map[string]percolator.Timestamp{}
	// The first commits of a row may be missing, if the initial state has a later one.
	complete := func() bool {
		for at := range left {
			overwritten := false
			for from := range initial {
				overwritten = overwritten || at < from
			}
			if !overwritten {
				return false
			}
		}
		return true
	}
	for len(got) == 0 || !complete() {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v, with %d of %d changes", err, len(got), len(want))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			var c percolator.Change
			if err := json.Unmarshal(r.Value, &c); err != nil {
				t.Fatal(err)
			}
			if got[c.CommitTS] != "" {
				t.Errorf("the change at %d is there twice", c.CommitTS)
			}
			if c.CommitTS < rows[c.Row] {
				t.Errorf("row %s at %d after %d", c.Row, c.CommitTS, rows[c.Row])
			}
			if c.Initial {
				initial[c.CommitTS] = true
			}
			rows[c.Row] = c.CommitTS
			got[c.CommitTS] = fmt.Sprintf("%s=%s", c.Row, c.Value)
			delete(left, c.CommitTS)
		})
	}
	return got
}

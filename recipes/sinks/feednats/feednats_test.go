package feednats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

var column = percolator.Column{Table: "t", Name: "c"}

// openStream starts a server in this process, without a listener, with a stream "changes" whose
// window for duplicates is too short to matter.
func openStream(ctx context.Context, t *testing.T) jetstream.JetStream {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "changes", Subjects: []string{"changes", "changes.resolved"}, Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// TestEachOnce: Publish is ended again and again while rows are written. In the end each commit is in
// the stream once, and those of a row in order. A second publisher fails.
func TestEachOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	js := openStream(ctx, t)
	db := percolatortest.Start(t, nil).DB()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Stream: "changes", Subject: "changes", Subscription: "nats", ResolveEvery: 20 * time.Millisecond,
	}
	want, last := map[percolator.Timestamp]string{}, percolator.Timestamp(0)
	for round := range 5 {
		publishing, stop := context.WithCancel(ctx)
		done := make(chan error, 2)
		go func() { done <- publish(publishing, t, db, js, cfg) }()
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
			if i == 20 {
				awaitResolved(ctx, t, js, last)
			}
		}
		if round == 4 {
			awaitResolved(ctx, t, js, last)
			stop()
			<-done
			testTwoPublishers(ctx, t, db, js, cfg)
			break
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("Publish returns %v after its context was cancelled", err)
		}
	}
	got, initial := read(ctx, t, js)
	for at, change := range want {
		if got[at] != change && at > initial {
			t.Errorf("the commit of %s at %d is %q in the stream", change, at, got[at])
		}
	}
}

// publish calls Publish until ctx ends, and returns its last error. Publish fails while the server still
// appends the last message of the publisher before, which did not wait for it.
func publish(ctx context.Context, t *testing.T, db *percolator.DB, js jetstream.JetStream, cfg Config) error {
	for {
		err := Publish(ctx, db, js, cfg, percolator.Rows("t"))
		if ctx.Err() != nil {
			return err
		}
		t.Log("Publish is called again after: ", err)
	}
}

// testTwoPublishers: one of two concurrent publishers fails.
func testTwoPublishers(ctx context.Context, t *testing.T, db *percolator.DB, js jetstream.JetStream, cfg Config) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- Publish(ctx, db, js, cfg, percolator.Rows("t")) }()
	}
	if err := <-done; err == nil || ctx.Err() != nil {
		t.Errorf("one of two publishers ends with %v", err)
	}
	stop()
	<-done
}

// awaitResolved waits until the stream's last resolved message is not below at.
func awaitResolved(ctx context.Context, t *testing.T, js jetstream.JetStream, at percolator.Timestamp) {
	t.Helper()
	stream, err := js.Stream(ctx, "changes")
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := stream.GetLastMsgForSubject(ctx, "changes.resolved")
		if err == nil {
			if c, err := changeOf(m); err == nil && c.Resolved >= at {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the last commit is not in the stream")
		}
	}
}

// read returns the changes of the stream by commit timestamp, and the timestamp of the initial state.
func read(ctx context.Context, t *testing.T,
	js jetstream.JetStream) (got map[percolator.Timestamp]string, initial percolator.Timestamp) {
	t.Helper()
	stream, err := js.Stream(ctx, "changes")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got = map[percolator.Timestamp]string{}
	rows := map[string]percolator.Timestamp{}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		var c percolator.Change
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Fatal(err)
		}
		switch {
		case c.Resolved != 0:
			if initial == 0 {
				initial = c.Resolved
			}
			continue
		case got[c.CommitTS] != "":
			t.Errorf("the change at %d is there twice", c.CommitTS)
		case !c.Initial && c.CommitTS < rows[c.Row]:
			t.Errorf("row %s at %d after %d", c.Row, c.CommitTS, rows[c.Row])
		}
		rows[c.Row] = c.CommitTS
		got[c.CommitTS] = fmt.Sprintf("%s=%s", c.Row, c.Value)
	}
	return got, initial
}

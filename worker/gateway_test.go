package worker_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/node"
)

// gated is a node whose gateway serves workers.
type gated struct {
	*testing.T
	node *node.Node
	http *http.Client
	url  string
	work gw.WorkClient
	data gw.GatewayClient
}

func gate(t *testing.T) *gated {
	n := openNode(t, func(cfg *node.Config) { cfg.Gateway = "127.0.0.1:0" })
	g := &gated{T: t, node: n, url: "http://" + n.GatewayAddr(), http: &http.Client{Transport: &http.Transport{}}}
	g.work = gw.NewWorkClient(g.http, g.url, connect.WithProtoJSON())
	g.data = gw.NewGatewayClient(g.http, g.url, connect.WithProtoJSON())
	t.Cleanup(g.http.CloseIdleConnections)
	return g
}

// remote is a worker of the gateway that a test drives.
type remote struct {
	g      *gated
	id     string
	runs   chan *gw.Run
	cancel context.CancelFunc
	ended  chan error // of the stream
}

// countsInput is the registration of an observer of input.
func countsInput(change func(*gw.ObserverRegistration)) *gw.ObserverRegistration {
	o := &gw.ObserverRegistration{
		Name: "count", Table: input.Table, ColumnAs: &gw.ObserverRegistration_Column{Column: input.Name},
	}
	if change != nil {
		change(o)
	}
	return o
}

// observe opens a worker's stream, and renews its lease until the test cancels renewing. If the
// request names no lease, it is 20 s, long enough for a busy machine.
func (g *gated) observe(renewing context.Context, req *gw.ObserveRequest) *remote {
	g.Helper()
	req.LeaseMs = cmp.Or(req.LeaseMs, 20_000)
	ctx, cancel := context.WithCancel(g.Context())
	stream, err := g.work.Observe(ctx, connect.NewRequest(req))
	if err != nil {
		g.Fatal(err)
	}
	r := &remote{g: g, runs: make(chan *gw.Run, 1000), cancel: cancel, ended: make(chan error, 1)}
	for ok := true; ok && stream.Msg().GetStarted() == nil; { // empty messages may precede it
		ok = stream.Receive()
	}
	if stream.Msg().GetStarted() == nil {
		g.Fatalf("the worker is not started: %v, %v", stream.Msg(), stream.Err())
	}
	r.id = stream.Msg().Started.Worker
	done := make(chan struct{})
	go func() {
		defer close(done)
		for stream.Receive() {
			for _, run := range stream.Msg().Runs {
				r.runs <- run
			}
		}
		r.ended <- stream.Err()
		_ = stream.Close()
	}()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for renewing.Err() == nil && ctx.Err() == nil {
			_, _ = g.work.Renew(ctx, connect.NewRequest(&gw.RenewRequest{Worker: r.id})) // fails at the end
			select {
			case <-time.After(100 * time.Millisecond):
			case <-renewing.Done():
			case <-ctx.Done():
			}
		}
	}()
	g.Cleanup(func() { cancel(); <-done; <-renewed })
	return r
}

// next returns the next run.
func (r *remote) next() *gw.Run {
	r.g.Helper()
	select {
	case run := <-r.runs:
		return run
	case <-time.After(20 * time.Second):
		r.g.Fatal("no run has come")
		return nil
	}
}

// add reads the count of each row of the run, and returns the writes that add to it.
func (r *remote) add(run *gw.Run) *gw.FinishRequest {
	r.g.Helper()
	read := &gw.ReadRequest{Snapshot: &gw.ReadRequest_Session{Session: run.Session}}
	for _, c := range run.Changes {
		read.Keys = append(read.Keys, countOf(c.GetRow()))
	}
	answer, err := r.g.data.Read(r.g.Context(), connect.NewRequest(read))
	if err != nil {
		r.g.Fatal(err)
	}
	req := &gw.FinishRequest{Session: run.Session}
	for i, c := range run.Changes {
		req.Writes = append(req.Writes, &gw.CellWrite{
			Table: count.Table, RowAs: &gw.CellWrite_Row{Row: c.GetRow()}, ColumnAs: &gw.CellWrite_Column{Column: count.Name},
			ValueAs: &gw.CellWrite_Value{Value: answer.Msg.Cells[i].GetValue() + "+"},
		})
	}
	return req
}

func countOf(row string) *gw.Key {
	return &gw.Key{Table: count.Table, RowAs: &gw.Key_Row{Row: row}, ColumnAs: &gw.Key_Column{Column: count.Name}}
}

func (r *remote) finish(req *gw.FinishRequest) (*gw.FinishResponse, error) {
	resp, err := r.g.work.Finish(r.g.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// commit finishes a run, and fails the test unless it commits.
func (r *remote) commit(req *gw.FinishRequest) {
	r.g.Helper()
	if resp, err := r.finish(req); err != nil || !resp.Committed || resp.CommitTimestamp == 0 {
		r.g.Fatalf("finish: %v, %v", resp, err)
	}
}

// expect waits up to a minute, and fails the test unless each of the rows is counted once.
func (g *gated) expect(rows int) {
	g.Helper()
	eventually(g, "all rows are counted", func() bool { return sum(counts(g, g.node.DB())) >= rows })
	if err := g.node.DB().WaitIdle(within(g, time.Minute)); err != nil {
		g.Fatal(err)
	}
	if got := counts(g, g.node.DB()); got["+"] != rows || len(got) != 1 {
		g.Errorf("counts %v, want %d rows that were counted once", got, rows)
	}
}

func reasonOf(err error) gw.Failure_Reason {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return gw.Failure_REASON_UNSPECIFIED
	}
	for _, d := range e.Details() {
		if f, err := d.Value(); err == nil {
			return f.(*gw.Failure).GetReason()
		}
	}
	return gw.Failure_REASON_UNSPECIFIED
}

// TestGatewayRunsObservers: over JSON and HTTP/1.1, a run is a session whose writes commit with Finish alone, once.
func TestGatewayRunsObservers(t *testing.T) {
	g := gate(t)
	w := g.observe(t.Context(), &gw.ObserveRequest{Observers: []*gw.ObserverRegistration{countsInput(
		func(o *gw.ObserverRegistration) { o.Version = 3 })}})
	write(t, g.node.DB(), 2)
	run := w.next()
	if run.Observer != "count" || len(run.Changes) != 1 || !strings.HasPrefix(run.Changes[0].GetRow(), "row/") {
		t.Fatalf("the run is %v", run)
	}
	req := w.add(run)
	for what, call := range map[string]func() error{
		"Commit": func() error {
			_, err := g.data.Commit(t.Context(), connect.NewRequest(&gw.CommitRequest{Session: run.Session}))
			return err
		},
		"Rollback": func() error {
			_, err := g.data.Rollback(t.Context(), connect.NewRequest(&gw.RollbackRequest{Session: run.Session}))
			return err
		},
	} {
		if err := call(); reasonOf(err) != gw.Failure_REASON_INVALID {
			t.Errorf("%s of a run: %v", what, err)
		}
	}
	w.commit(req)
	if _, err := w.finish(req); reasonOf(err) != gw.Failure_REASON_SESSION_ENDED {
		t.Errorf("a run was finished again: %v", err)
	}
	w.commit(w.add(w.next()))
	g.expect(2)
	state := stateOf(t, g.node)
	if !state.GetLinked() || len(state.GetNodes()) == 0 {
		t.Errorf("the state is %v", state)
	}
}

// TestGatewayCommitsNothingOfALostWorker: a worker loses its lease, or its stream, between its writes and Finish. The
// change goes to another worker, and counts once.
func TestGatewayCommitsNothingOfALostWorker(t *testing.T) {
	for _, what := range []string{"lease", "stream"} {
		t.Run(what, func(t *testing.T) {
			g := gate(t)
			renewing, stop := context.WithCancel(t.Context())
			req := &gw.ObserveRequest{
				Observers: []*gw.ObserverRegistration{countsInput(nil)}, LeaseMs: 3000,
			}
			lost := g.observe(renewing, req)
			write(t, g.node.DB(), 1)
			run := lost.next()
			late := lost.add(run)
			if _, err := g.data.Write(t.Context(), connect.NewRequest(&gw.WriteRequest{
				Session: run.Session, Writes: late.Writes,
			})); err != nil {
				t.Fatal(err)
			}
			other := g.observe(t.Context(), req)
			began := time.Now()
			if stop(); what == "stream" {
				lost.cancel()
			}
			var again *gw.Run
			select {
			case again = <-other.runs:
			case <-time.After(20 * time.Second):
				t.Fatalf("LOST-COMMITS: the run was not handed on; the counts are %v", counts(t, g.node.DB()))
			}
			t.Logf("handed on after %v", time.Since(began))
			if _, err := lost.finish(late); reasonOf(err) != gw.Failure_REASON_SESSION_ENDED {
				t.Errorf("the run of a lost worker was finished: %v", err)
			}
			if _, err := g.work.Renew(t.Context(), connect.NewRequest(&gw.RenewRequest{Worker: lost.id})); reasonOf(err) !=
				gw.Failure_REASON_SESSION_ENDED {
				t.Errorf("a lost worker was renewed: %v", err)
			}
			other.commit(other.add(again))
			g.expect(1)
		})
	}
}

// TestGatewayParksWhatKillsItsWorkers: a change whose workers die is parked.
func TestGatewayParksWhatKillsItsWorkers(t *testing.T) {
	g := gate(t)
	req := &gw.ObserveRequest{Observers: []*gw.ObserverRegistration{countsInput(
		func(o *gw.ObserverRegistration) { o.MaxAttempts = 2 })}}
	w := g.observe(t.Context(), req)
	write(t, g.node.DB(), 1)
	deaths := 0
	for parked := false; !parked; {
		eventually(t, "the change runs or is parked", func() bool {
			parked = stateOf(t, g.node).GetParked() == 1
			return parked || len(w.runs) > 0
		})
		if !parked {
			if deaths++; deaths > 6 {
				t.Fatalf("not parked after %d deaths", deaths)
			}
			w.cancel()
			w = g.observe(t.Context(), req)
		}
	}
	t.Logf("parked after %d deaths", deaths)
}

// TestGatewayAcknowledgesInTheTransaction: another transaction writes what the run has read, so that its commit
// conflicts. Neither its writes nor its acknowledgment remain, and the run repeats.
func TestGatewayAcknowledgesInTheTransaction(t *testing.T) {
	g := gate(t)
	w := g.observe(t.Context(), &gw.ObserveRequest{Observers: []*gw.ObserverRegistration{countsInput(nil)}})
	write(t, g.node.DB(), 1)
	run := w.next()
	req := w.add(run)
	other := func(value string) {
		t.Helper()
		err := g.node.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
			if value == "" {
				tx.Delete(run.Changes[0].GetRow(), count)
			} else {
				tx.Set(run.Changes[0].GetRow(), count, []byte(value))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	other("-")
	other("")
	resp, err := w.finish(req)
	if err != nil || resp.Committed {
		t.Fatalf("ACK-OUTSIDE: a run in conflict: %v, %v; the counts are %v", resp, err, counts(t, g.node.DB()))
	}
	w.commit(w.add(w.next()))
	g.expect(1)
}

// TestGatewayDrainsWorkers: a worker that retires gets nothing more, finishes its run, and its stream ends without an
// error.
func TestGatewayDrainsWorkers(t *testing.T) {
	g := gate(t)
	w := g.observe(t.Context(), &gw.ObserveRequest{
		Observers: []*gw.ObserverRegistration{countsInput(nil)}, Concurrency: 1,
	})
	write(t, g.node.DB(), 1)
	run := w.next()
	if _, err := g.work.Retire(t.Context(), connect.NewRequest(&gw.RetireRequest{Worker: w.id})); err != nil {
		t.Fatal(err)
	}
	write(t, g.node.DB(), 20)
	w.commit(w.add(run))
	if err := <-w.ended; err != nil {
		t.Errorf("the stream of a worker that has retired: %v", err)
	}
	if len(w.runs) > 0 {
		t.Errorf("a worker that retires got %v", <-w.runs)
	}
}

// TestGatewayFailures: batches with failed changes, failed runs, refusals of an outside service, priorities.
func TestGatewayFailures(t *testing.T) {
	g := gate(t)
	w := g.observe(t.Context(), &gw.ObserveRequest{Observers: []*gw.ObserverRegistration{countsInput(
		func(o *gw.ObserverRegistration) { o.Batch, o.Concurrency, o.MaxAttempts = 100, 1, 2 })}})
	write(t, g.node.DB(), 8)
	replayed := 0
	refused, failing := false, "row/00005"
	began := time.Now()
	for counted := 0; counted < 7; {
		run := w.next()
		req := w.add(run)
		has := slices.ContainsFunc(run.Changes, func(c *gw.ObservedChange) bool { return c.GetRow() == failing })
		switch {
		case !refused:
			refused = true
			req.Failed = &gw.RunFailure{Kind: gw.RunFailure_KIND_RETRY_AFTER, RetryAfterMs: 500, Message: "busy"}
		case has:
			replayed++
			req.Writes = slices.DeleteFunc(req.Writes, func(c *gw.CellWrite) bool { return c.GetRow() == failing })
			req.FailedChanges = []*gw.ChangeFailure{{
				RowAs: &gw.ChangeFailure_Row{Row: failing}, Failure: &gw.RunFailure{Message: "bad row"},
			}}
			fallthrough
		default:
			if waited := time.Since(began); waited < 500*time.Millisecond {
				t.Errorf("the observer has waited %v for the service", waited)
			}
			counted += len(req.Writes)
		}
		if _, err := w.finish(req); err != nil {
			t.Fatal(err)
		}
	}
	for replayed < 2 { // then it is parked
		run := w.next()
		replayed++
		if _, err := w.finish(&gw.FinishRequest{Session: run.Session, Failed: &gw.RunFailure{Message: "bad row"}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the row is parked", func() bool { return stateOf(t, g.node).GetParked() == 1 })
	g.expect(7)
}

// TestGatewayRefusesWorkers: requests that cannot be served are refused with the reason.
func TestGatewayRefusesWorkers(t *testing.T) {
	g := gate(t)
	for what, req := range map[string]*gw.ObserveRequest{
		"nothing":         {},
		"an empty name":   {Observers: []*gw.ObserverRegistration{countsInput(func(o *gw.ObserverRegistration) { o.Name = "" })}},
		"a large batch":   {Observers: []*gw.ObserverRegistration{countsInput(func(o *gw.ObserverRegistration) { o.Batch = 2000 })}},
		"a long deadline": {Observers: []*gw.ObserverRegistration{countsInput(func(o *gw.ObserverRegistration) { o.DeadlineMs = 1 << 31 })}},
		"a short lease":   {Observers: []*gw.ObserverRegistration{countsInput(nil)}, LeaseMs: 1},
		"concurrency":     {Observers: []*gw.ObserverRegistration{countsInput(nil)}, Concurrency: 1 << 20},
	} {
		stream, err := g.work.Observe(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
			t.Errorf("%s: %v", what, stream.Msg())
		}
		if reasonOf(stream.Err()) != gw.Failure_REASON_INVALID {
			t.Errorf("%s: %v", what, stream.Err())
		}
		_ = stream.Close()
	}
	if _, err := g.work.Finish(t.Context(), connect.NewRequest(&gw.FinishRequest{Session: "x"})); reasonOf(err) !=
		gw.Failure_REASON_SESSION_ENDED {
		t.Errorf("finish of nothing: %v", err)
	}
}

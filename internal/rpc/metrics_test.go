package rpc

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestClientsAreCounted: the server reports its clients' operations and refusals; a connection
// counts until it is closed.
func TestClientsAreCounted(t *testing.T) {
	s := serve(t, ServerConfig{})
	transport := s.transport(BatchConfig{})
	var async atomic.Bool
	c := txn.NewClient(transport, txn.Config{AsyncCommits: async.Load})
	s.set(c, []byte("x"), "a")
	s.set(c, []byte("x"), "a", "h")
	forbidden := &pb.TabletRequest{Op: &pb.TabletRequest_Split{Split: &pb.SplitRequest{}}}
	if _, err := transport.Send(s.ctx, &pb.TabletDescriptor{TabletId: 2}, forbidden); err != nil {
		t.Fatal(err)
	}
	until := func(done func() bool, failure string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
		defer cancel()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !done() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatal(failure)
			}
		}
	}
	// Secondaries are committed after the deciding operation.
	until(func() bool { return s.server.Stats().Operations["commit"].Count() > 0 }, "no commit was counted")
	got := s.server.Stats()
	if got.Committed != 2 { // one of one phase and one of two
		t.Errorf("%d transactions of clients were counted, not 2", got.Committed)
	}
	async.Store(true)
	s.set(c, []byte("y"), "a", "h")
	until(func() bool { return s.server.Stats().Committed == 3 }, "an asynchronous commit is not counted")
	for _, name := range []string{"one_phase", "prewrite", "split"} {
		if got.Operations[name].Count() == 0 {
			t.Errorf("no %s was counted", name)
		}
	}
	if got.Errors[pb.Error_CODE_PERMISSION] != 1 || got.Connections != 1 || got.Accepted != 1 {
		t.Errorf("%+v", got)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	until(func() bool { return s.server.Stats().Connections == 0 }, "a closed connection is counted")
}

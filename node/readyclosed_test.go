package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestClosedReplicaIsSeen: a replica that stays closed is in what /readyz says and in the
// metrics, until it runs again.
func TestClosedReplicaIsSeen(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "127.0.0.1:0", "", true, true
	n, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	for _, why := range []error{nil, errors.New("the disk is full"), nil} {
		n.replicas.mu.Lock()
		n.replicas.held[2].closed = why
		n.replicas.mu.Unlock()
		want := 0.0
		if why != nil {
			want = 1
		}
		values, err := n.Metrics()
		if got := values["percolator_replicas_closed"]; got != want || err != nil {
			t.Errorf("%v replicas are closed, want %v, %v", got, want, err)
		}
		ready := n.ready(ctx)
		if (ready == nil) != (why == nil) || (ready != nil && !strings.Contains(ready.Error(), "tablet 2 (one of 1)")) {
			t.Errorf("closed by %v: ready says %v", why, ready)
		}
	}
}

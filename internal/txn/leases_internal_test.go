package txn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// keeper is a Transport with an oracle on the bubble's clock, and meta's side of leases.
type keeper struct {
	Transport
	mu      sync.Mutex
	last    mvcc.Timestamp
	history time.Duration
	bound   mvcc.Timestamp
	down    bool
	asked   []*pb.HoldHistoryRequest
}

func (k *keeper) Worker() mvcc.Worker { return mvcc.Worker{Node: 3, Incarnation: 4} }
func (k *keeper) Close() error        { return nil }

func (k *keeper) Timestamps(_ context.Context, n int) (mvcc.Timestamp, int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := max(k.last+1, mvcc.TimestampAt(time.Now().UnixMilli()))
	k.last = first + mvcc.Timestamp(n) - 1
	return first, n, nil
}

func (k *keeper) HoldHistory(_ context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return nil, errors.New("nobody there")
	}
	k.asked = append(k.asked, req)
	return &pb.HoldHistoryResponse{
		Bound: uint64(k.bound), TtlMs: req.TtlMs, HistoryMs: uint64(k.history.Milliseconds()),
	}, nil
}

func (k *keeper) requests() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

func (k *keeper) lastAsked() *pb.HoldHistoryRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked[len(k.asked)-1]
}

// elapse advances the bubble's time, so that everything due in it happens.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func withKeeper(t *testing.T, history time.Duration, f func(t *testing.T, k *keeper, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{history: history}
		c := NewClient(k, Config{LeaseTTL: 30 * time.Second})
		f(t, k, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLeaseOnlyForOldSnapshots: short-lived snapshots cost no message; an old one is held, renewed
// before the lease ends, and released after it is closed.
func TestLeaseOnlyForOldSnapshots(t *testing.T) {
	withKeeper(t, 40*time.Second, func(t *testing.T, k *keeper, c *Client) {
		for range 1000 {
			s, err := c.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
			elapse(time.Millisecond)
		}
		if n := k.requests(); n != 0 {
			t.Fatalf("%d requests for snapshots that live no time", n)
		}
		old, _ := c.Snapshot(t.Context())
		young, _ := c.Snapshot(t.Context())
		elapse(time.Minute)
		if k.requests() < 3 || k.lastAsked().Oldest != uint64(old.Timestamp()) {
			t.Errorf("%d requests in a minute, the last %v; want it at %d", k.requests(),
				k.lastAsked(), old.Timestamp())
		}
		if n := k.requests(); n > 8 {
			t.Errorf("%d requests in a minute with leases of 30 s", n)
		}
		_ = old.Close()
		elapse(30 * time.Second)
		if got := k.lastAsked().Oldest; got != uint64(young.Timestamp()) {
			t.Errorf("the lease is at %d, want %d, the next oldest", got, young.Timestamp())
		}
		_ = young.Close()
		elapse(30 * time.Second)
		n := k.requests()
		if got := k.lastAsked().Oldest; got != 0 {
			t.Errorf("the lease is at %d, and no snapshot is open", got)
		}
		if elapse(time.Hour); k.requests() != n {
			t.Error("a client without snapshots asks")
		}
	})
}

// TestLeaseForThePast: a snapshot of the past is held at once, also under a younger lease; one
// below the bound is forgotten; Close releases the lease.
func TestLeaseForThePast(t *testing.T) {
	withKeeper(t, time.Hour, func(t *testing.T, k *keeper, c *Client) {
		first, _ := c.Timestamp(t.Context())
		elapse(time.Minute)
		second, _ := c.Timestamp(t.Context())
		elapse(time.Hour)
		later, err := c.SnapshotAt(t.Context(), second)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if k.requests() != 1 || k.lastAsked().Oldest != uint64(second) {
			t.Fatalf("queried %v, want a lease at %d", k.asked, second)
		}
		k.mu.Lock()
		k.bound = second
		k.mu.Unlock()
		leaked, err := c.SnapshotAt(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := k.lastAsked().Oldest; got != uint64(first) {
			t.Errorf("the lease is at %d, want the older %d", got, first)
		}
		elapse(time.Minute)
		if got := k.lastAsked().Oldest; got != uint64(second) {
			t.Errorf("the lease is at %d, want %d: what is below the bound is refused anyway", got,
				second)
		}
		_ = leaked.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got := k.lastAsked().Oldest; got != 0 {
			t.Errorf("after Close the lease is at %d", got)
		}
		_ = later.Close()
	})
}

// TestLeaseRetries: while meta does not answer the request is retried.
func TestLeaseRetries(t *testing.T) {
	withKeeper(t, 10*time.Minute, func(t *testing.T, k *keeper, c *Client) {
		k.down = true
		s, _ := c.Snapshot(t.Context())
		elapse(10 * time.Second)
		k.mu.Lock()
		k.down = false
		k.mu.Unlock()
		if elapse(2 * time.Second); k.requests() == 0 {
			t.Error("meta is back and is not asked")
		}
		_ = s.Close()
	})
}

// BenchmarkSnapshotTracking measures an open snapshot's cost besides its timestamp and reads.
func BenchmarkSnapshotTracking(b *testing.B) {
	c := NewClient(&keeper{}, Config{})
	defer func() { _ = c.Close() }()
	b.RunParallel(func(p *testing.PB) {
		ts := mvcc.TimestampAt(time.Now().UnixMilli())
		for p.Next() {
			ts++
			c.leases.Add(ts, false)
			c.leases.Remove(ts)
		}
	})
}

package percolator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// flaky is a listener of a node that restarts: it hangs up on everybody, and then on the
// next who try.
type flaky struct {
	net.Listener
	mu       sync.Mutex
	accepted []net.Conn
	refuse   int // connections still to be refused
}

func (f *flaky) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		f.mu.Lock()
		if f.refuse == 0 {
			f.accepted = append(f.accepted, conn)
			f.mu.Unlock()
			return conn, nil
		}
		f.refuse--
		f.mu.Unlock()
		_ = conn.Close() // the client sees it fail, which is what it is for
	}
}

// restart hangs up on all, and refuses the next n connections.
func (f *flaky) restart(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = n
	for _, conn := range f.accepted {
		_ = conn.Close() // some are closed already
	}
	f.accepted = nil
}

func (f *flaky) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuse
}

// observed is a cluster with somebody to ask about observers.
type observed struct{ *txntest.Process }

func (observed) Observers(context.Context) ([]*pb.ObserverState, error) { return nil, nil }

// TestReadsOfMetaOutliveRestart: what only reads is asked again while the node is away,
// within the caller's context.
func TestReadsOfMetaOutliveRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := &flaky{Listener: lis}
	cluster := txntest.New()
	cluster.AddTable("t")
	server := rpc.NewServer(observed{cluster.Process(1, 1)}, rpc.ServerConfig{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(gate); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer server.Stop()
	db, err := percolator.Dial(ctx, []string{lis.Addr().String()},
		percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"WaitIdle": func() error { return db.WaitIdle(ctx) },
		"Pending":  func() error { _, err := db.Pending(ctx); return err },
		"Tables":   func() error { _, err := db.Tables(ctx); return err },
		"ReplayParked": func() error {
			_, err := handle.Client(db).ReplayParked(ctx, "nobody", nil)
			if errors.Is(err, percolator.ErrInvalid) { // the catalogue has been read
				return nil
			}
			return fmt.Errorf("an observer that is not there was replayed: %w", err)
		},
	} {
		gate.restart(2)
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := gate.left(); n != 0 {
			t.Errorf("%s: the node was away for %d connections fewer than it should have been",
				name, n)
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := handle.Client(db).Observers(ctx); !errors.Is(err, percolator.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

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

// flaky is the listener of a restarting node: it closes all connections and refuses the next
// ones.
type flaky struct {
	net.Listener
	mu       sync.Mutex
	accepted []net.Conn
	refuse   int // number of connections left to refuse
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
		_ = conn.Close() // fails the client's connection, as intended
	}
}

// restart closes all connections and refuses the next n.
func (f *flaky) restart(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = n
	for _, conn := range f.accepted {
		_ = conn.Close() // may be closed already
	}
	f.accepted = nil
}

func (f *flaky) unrefused() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuse
}

// withObservers is a process that answers the request for observers with none.
type withObservers struct{ *txntest.Process }

func (withObservers) Observers(context.Context) ([]*pb.ObserverState, error) { return nil, nil }

// TestReadsOfMetaOutliveRestart: read-only requests to meta are retried while the node
// restarts, within the caller's context.
func TestReadsOfMetaOutliveRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &flaky{Listener: lis}
	cluster := txntest.New()
	cluster.AddTable("t")
	server := rpc.NewServer(withObservers{cluster.Process(1, 1)}, rpc.ServerConfig{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
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
			if errors.Is(err, percolator.ErrInvalid) { // the catalogue was read
				return nil
			}
			return fmt.Errorf("replay of an unknown observer: %w, want ErrInvalid", err)
		},
	} {
		listener.restart(2)
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := listener.unrefused(); n != 0 {
			t.Errorf("%s: %d refusals left: the client did not reconnect often enough", name, n)
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := handle.Client(db).Observers(ctx); !errors.Is(err, percolator.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// TestFirstReadTakesTimestamp: in the node's process and over the network, a transaction that reads
// in one tablet sends the oracle no request, and sees every commit of any client that had returned
// before it began, during other writes.
func TestFirstReadTakesTimestamp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := open(t, t.TempDir(), nil)
	remote := dial(t, n)
	for name, reader := range map[string]*percolator.DB{"in process": n.DB(),
		"over the network": remote} {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			for caller := range 8 {
				wg.Go(func() {
					readAfterWrite(ctx, t, reader, []*percolator.DB{n.DB(), remote},
						fmt.Sprint(name, caller))
				})
			}
			wg.Wait()
			// Other users of the node's client may also send requests to the oracle.
			for range 50 {
				before := reader.Stats().TimestampRequests
				if _, err := readOne(ctx, reader, "a"); err != nil {
					t.Fatal(err)
				}
				if reader.Stats().TimestampRequests == before {
					return
				}
			}
			t.Error("every read transaction asked the oracle")
		})
	}
}

// readAfterWrite makes the writers write the row in turn and reads it after each write.
func readAfterWrite(ctx context.Context, t *testing.T, reader *percolator.DB,
	writers []*percolator.DB, row string) {
	for i := range 50 {
		want := fmt.Sprint(i)
		if err := set(ctx, writers[i%len(writers)], row, cell, []byte(want)); err != nil {
			t.Error(err)
			return
		}
		if got, err := readOne(ctx, reader, row); err != nil || got != want {
			t.Errorf("read %q after %q had committed: %v", got, want, err)
			return
		}
	}
}

func readOne(ctx context.Context, db *percolator.DB, row string) (value string, err error) {
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		v, _, err := tx.Get(ctx, row, cell)
		value = string(v)
		return err
	})
	return value, err
}

package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/node"
)

// TestCloseJoinsEverything: a node used by local and remote clients leaves no goroutine behind.
func TestCloseJoinsEverything(t *testing.T) {
	leaktest.Check(t)
	t.Run("use", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		o := watch()
		n := open(t, "", func(c *node.Config) { c.Observers, c.HTTP = o.register, "127.0.0.1:0" })
		if err := set(ctx, dial(t, n), "r", o.column, []byte("x")); err != nil {
			t.Fatal(err)
		}
		o.await(t)
	})
}

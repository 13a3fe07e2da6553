package scale

import (
	"context"
	"path/filepath"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/disk"
)

// TestChecks: a missing row is an error, not a figure, and a store occupies space.
func TestChecks(t *testing.T) {
	dir := t.TempDir()
	if err := withNode(t.Context(), dir, nil, func(n *node.Node) error {
		err := n.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
			for i := range 10 {
				tx.Set(row(i), column, []byte("value"))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if count(t.Context(), n.DB(), 11) == nil {
			t.Error("a missing row was not found")
		}
		return count(t.Context(), n.DB(), 10)
	}); err != nil {
		t.Fatal(err)
	}
	if bytes, _, err := disk.Usage(filepath.Join(dir, "node")); err != nil || bytes < 10*5 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
}

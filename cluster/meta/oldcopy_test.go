package meta

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// TestOldCopyIsRefused: a directory is restored from a copy made while the node ran on. However
// often it is started, with a higher incarnation each time, it is not registered: it lacks votes
// and acknowledgments. The node's own directory registers after failed starts. Catches
// BROKEN=old_copy.
func TestOldCopyIsRefused(t *testing.T) {
	_, m := newWorld(t)
	registry := &Registry{
		Nodes: m.Nodes, Members: cluster.NewAlone(cluster.Member{}),
		Now: func(context.Context) (mvcc.Timestamp, error) {
			return 77, nil
		},
		Tablet: func() *pb.TabletDescriptor { return cluster.FirstTablets(1)[0] },
	}
	const maxStarts = 64 // recorded by a directory
	dir, old := filepath.Join(t.TempDir(), "node"), filepath.Join(t.TempDir(), "copy")
	// start registers a start of the directory, after some failed ones.
	start := func(dir string, inVain int) error {
		st, err := store.Open(store.Options{Dir: dir, MemTableSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}()
		var self *join.Self
		for range inVain + 1 {
			if self, err = join.OpenSelf(st); err != nil {
				t.Fatal(err)
			}
		}
		if self.Identity().Fresh() {
			if err := self.Begin(func(*store.Batch, uint64) {}); err != nil {
				t.Fatal(err)
			}
		}
		d := join.NewMembership(join.MembershipConfig{
			Self: self, Addresses: &pb.NodeAddresses{Listen: "a:1", Peer: "a:2", Gossip: "a:3"},
		})
		if err := d.Register(t.Context(), registry); err != nil {
			return err
		}
		contacts, err := registry.Contacts(t.Context())
		if err != nil {
			return err
		}
		contacts.ClusterId = self.Identity().ClusterID
		return self.Joined(contacts)
	}
	if err := start(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, inVain := range []int{1, 2, 2 * maxStarts} {
		if err := start(dir, inVain); err != nil {
			t.Fatalf("after %d starts that came to nothing: %v", inVain, err)
		}
	}
	// finally with a higher incarnation
	for _, inVain := range []int{0, 3, 2 * maxStarts, 0, maxStarts} {
		if err := start(old, inVain); !errors.Is(err, cluster.ErrStaleIncarnation) {
			t.Fatalf("OLD-COPY: after %d more starts: %v", inVain, err)
		}
	}
}

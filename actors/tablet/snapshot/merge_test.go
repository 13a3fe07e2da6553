package snapshot

import (
	"errors"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// TestMergeRefuses: a merge whose right replica is missing, being replaced or not frozen returns
// ErrNotFrozen, and one whose right replica cannot be read another error: replacing the replica
// would not help if the store is damaged.
func TestMergeRefuses(t *testing.T) {
	const right = sentTablet + 1
	put := func(state string) func(b *store.Batch) {
		return func(b *store.Batch) {
			b.PutTabletState(right, []byte(state))
			b.PutApplied(right, store.Applied{Index: 7, Term: 1})
		}
	}
	for name, tc := range map[string]struct {
		fill      func(b *store.Batch)
		notFrozen bool
	}{
		"missing":    {func(*store.Batch) {}, true},
		"not frozen": {put(""), true},
		"replaced": {func(b *store.Batch) {
			put("")(b)
			if err := putInstalling(b, &wire.Installing{TabletId: right}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"undecodable": {put("\xff"), false},
	} {
		s := newSource(t, sentDescriptor())
		s.commit(tc.fill)
		b := &store.Batch{}
		err := PutMerge(b, s.store, &Merge{
			Right: &pb.TabletDescriptor{TabletId: right, Epoch: 1}, Merged: sentDescriptor(), Index: 41,
			Term: 6,
		})
		if err == nil || errors.Is(err, ErrNotFrozen) != tc.notFrozen {
			t.Errorf("%s: %v; want ErrNotFrozen: %v", name, err, tc.notFrozen)
		}
	}
}

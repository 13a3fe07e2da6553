package simtest

import (
	"hash/maphash"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// TestDifferencesAreNamed checks that the report lists exactly the keys that differ between
// replicas.
func TestDifferencesAreNamed(t *testing.T) {
	const want = `
  node 1: 3 entries at index 12 of term 6, epoch 1, recorded size 0 bytes
  node 2: 2 entries at index 12 of term 6, epoch 1, recorded size 0 bytes
  L table 16 row "b" class 0 column "c" at 0: only on nodes [1]
  W table 16 row "a" class 0 column "c" at 0: different values`
	key := func(g mvcc.Group, row string) []byte {
		return store.AppendKey(nil, g, mvcc.Cell{Table: 16, Row: row, Column: "c"}, 7)
	}
	d := &pb.TabletDescriptor{
		TabletId: 2, Epoch: 1, StartTable: 16, EndTable: 16, EndRow: []byte("y"),
	}
	seed := maphash.MakeSeed()
	var all []stored
	for node := uint64(1); node <= 2; node++ {
		st, err := store.Open(store.Options{InMemory: true, MemTableSize: memTable})
		if err != nil {
			t.Fatal(err)
		}
		b := &store.Batch{}
		b.PutApplied(2, store.Applied{Index: 12, Term: 6, Epoch: 1})
		b.Put(key(mvcc.GroupData, "a"), []byte("alike"))
		b.Put(key(mvcc.GroupWrite, "a"), []byte{byte(node)})
		b.Put(key(mvcc.GroupWrite, "z"), []byte{byte(node)}) // of another tablet
		if node == 1 {
			b.Put(key(mvcc.GroupLock, "b"), nil)
		}
		if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
			t.Fatal(err)
		}
		s, err := holds(st, d, seed)
		if err != nil {
			t.Fatal(err)
		}
		s.node = node
		all = append(all, s)
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := report(all); got != want {
		t.Errorf("report:%s\nwant:%s", got, want)
	}
	if got := report(all[:1]); strings.Contains(got, "only on") {
		t.Errorf("report of one replica:%s", got)
	}
}

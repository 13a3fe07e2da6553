package memory

import (
	"bytes"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// TestRecordsReadOnce: a one-phase commit looks up the records of its cells twice, and reads them
// from the Snap once.
func TestRecordsReadOnce(t *testing.T) {
	s, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	written, missing := []mvcc.Cell{overlayCell(0), overlayCell(1)}, overlayCell(2)
	b := &store.Batch{}
	for i, c := range written {
		// The store caches no records that are this long.
		m := mvcc.Mutation{Group: mvcc.GroupWrite, Cell: c, Write: &mvcc.Write{
			Kind: mvcc.KindPut, StartTS: 1, CommitTS: mvcc.Timestamp(10 + i), Value: make([]byte, 1000),
		}}
		encoder := store.NewEncoder([]mvcc.Mutation{m}, false)
		b.Put(encoder.Encode(&m))
	}
	if err := s.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	snap := s.Snap()
	defer snap.Close()
	v, cells := New(Config{Store: s}).View(snap), []mvcc.Cell{written[0], missing, written[1]}
	v.Twice(len(cells))
	var first []mvcc.Write
	for _, c := range cells {
		w, there, err := v.Newest(c)
		if err != nil || there == (c == missing) {
			t.Fatalf("READ-ONCE: the record of %v: there %v, error %v", c, there, err)
		}
		first = append(first, w)
	}
	snap.Close()
	for i, c := range cells {
		w, there, err := v.Newest(c)
		if err != nil || there == (c == missing) || w.CommitTS != first[i].CommitTS || !bytes.Equal(w.Value, first[i].Value) {
			t.Errorf("READ-ONCE: the record of %v, looked up again: %d, there %v, error %v, want that of the first lookup, %d",
				c, w.CommitTS, there, err, first[i].CommitTS)
		}
	}
	v.Twice(1)
	if _, _, err := v.Newest(written[0]); err == nil {
		t.Error("READ-ONCE: the next operation read a record from a closed Snap, want an error")
	}
}

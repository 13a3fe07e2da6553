package tablet

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// TestTruncatedToTheCheckpoint: the log keeps all entries behind the checkpoint, however many, and
// is truncated again after the next one.
func TestTruncatedToTheCheckpoint(t *testing.T) {
	const kept, every = 256, 64 // as in package group
	r := newRig(t, store.Options{InMemory: true})
	write := func(n int) (first, last uint64) {
		t.Helper()
		var answers []<-chan result
		for i := range n {
			answers = append(answers, r.start(2, rawWrite("r", fmt.Sprint(i))))
			await(t, answers[i])
		}
		if err := r.logs.Barrier(); err != nil {
			t.Fatal(err)
		}
		log, err := r.store.OpenLog(2)
		if err != nil {
			t.Fatal(err)
		}
		if first, err = log.FirstIndex(); err != nil {
			t.Fatal(err)
		}
		if last, err = log.LastIndex(); err != nil {
			t.Fatal(err)
		}
		return first, last
	}
	checkpoint := uint64(store.InitialIndex)
	for range 3 {
		first, last := write(kept + every + 50)
		if first > checkpoint+1 {
			t.Fatalf("the log begins at %d, and the checkpoint is at %d", first, checkpoint)
		}
		if err := r.store.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		before := first
		if first, _ = write(1); first <= before || first > last-kept+2 {
			t.Fatalf("after a checkpoint at %d the log begins at %d, and before it at %d", last,
				first, before)
		}
		checkpoint = last
	}
}

// logEntry is an entry of a new tablet's first term.
func logEntry(index uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{
		Index: &index, Term: proto.Uint64(store.InitialTerm), Type: raftpb.EntryNormal.Enum(),
		Data: data,
	}
}

// appendTo appends to the log of a tablet whose actor is stopped.
func appendTo(t testing.TB, st *store.Store, tablet uint64, entries []*raftpb.Entry,
	hard *raftpb.HardState) {
	t.Helper()
	b := &raftlog.Batch{}
	b.Append(tablet, entries, hard)
	if err := st.Append(b); err != nil {
		t.Fatal(err)
	}
}

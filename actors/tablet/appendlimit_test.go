package tablet

import (
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/store"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestFullAppendWithTruncation: an append that fills a batch, with the truncation of a few thousand
// entries that a lagging replica had kept, is not too large for the store.
func TestFullAppendWithTruncation(t *testing.T) {
	const retained = 3000
	logger := slog.New(slog.DiscardHandler)
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	last := retainEntries(t, st, retained)
	system := actorkit.NewSystem(logger)
	logs := SpawnWriters(system, st, actorkit.BatchConfig{}, logger)
	readers := NewReadPool(1)
	done := make(chan *appended, 1)
	tablet := newTablet(system, st, logs, readers, groupTablet, nil, Config{Logger: logger})
	tablet.self = system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if a, ok := c.Message().(*appended); ok {
			done <- a
		}
	}))
	t.Cleanup(func() {
		if err := system.Root.StopFuture(tablet.self).Wait(); err != nil {
			t.Error(err)
		}
		readers.Close()
		if err := logs.Stop(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	if err := tablet.open(); err != nil {
		t.Fatal(err)
	}
	operation := make([]byte, 5_190_000) // with the next one it fills the batch
	room := st.MaxBatchBytes() - entryReserve
	m := &raftpb.Message{Entries: []*raftpb.Entry{
		logEntry(last+1, operation), logEntry(last+2, make([]byte, room-len(operation)-300)),
	}}
	tablet.append(m)
	if a := <-done; a.err != nil || a.truncated < last-keptEntries {
		t.Errorf("%v, truncated up to %d of %d", a.err, a.truncated, last)
	}
}

// retainEntries makes a replica that has applied so many entries and truncated none, and returns
// the last one's index.
func retainEntries(t *testing.T, st *store.Store, n int) (last uint64) {
	t.Helper()
	b := &store.Batch{}
	Bootstrap(b, &pb.TabletDescriptor{TabletId: groupTablet, Epoch: 1, EndUnbounded: true}, 1)
	if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	log, err := st.OpenLog(groupTablet)
	if err != nil {
		t.Fatal(err)
	}
	var entries []*raftpb.Entry
	for range n {
		entries = append(entries, logEntry(store.InitialIndex+uint64(len(entries))+1, nil))
	}
	last = store.InitialIndex + uint64(n)
	b = &store.Batch{}
	log.Append(b, entries, &raftpb.HardState{Term: proto.Uint64(store.InitialTerm), Vote: proto.Uint64(1), Commit: &last})
	b.PutApplied(groupTablet, store.Applied{Index: last, Term: store.InitialTerm, Epoch: 1})
	if err := st.LogWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	return last
}

func logEntry(index uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: proto.Uint64(store.InitialTerm), Type: raftpb.EntryNormal.Enum(), Data: data}
}

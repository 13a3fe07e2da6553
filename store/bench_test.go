package store_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// The figures of docs/adr/0002: go test ./store -run '^$' -bench . -benchtime 3s -count 3

const benchValue = 100 // bytes

// request is a batch that a caller wants committed.
type request struct {
	batch *store.Batch
	done  chan error
}

// drain commits all waiting requests together, until the channel is closed.
func drain(commit func([]*store.Batch) error, in <-chan request) {
	var waiting []request
	var batches []*store.Batch
	for r := range in {
		waiting, batches = append(waiting[:0], r), append(batches[:0], r.batch)
		for range len(in) {
			r := <-in
			waiting, batches = append(waiting, r), append(batches, r.batch)
		}
		err := commit(batches)
		for _, r := range waiting {
			r.done <- err
		}
	}
}

// appendRequest is a batch that a caller wants appended to the Raft logs.
type appendRequest struct {
	tablet  uint64
	entries []*raftpb.Entry
	done    chan error
}

// drainAppends appends all waiting batches together, until the channel is closed, as the log actor
// does.
func drainAppends(s *store.Store, in <-chan appendRequest) {
	var waiting []appendRequest
	for r := range in {
		batch := new(raftlog.Batch)
		batch.Append(r.tablet, r.entries, nil)
		waiting = append(waiting[:0], r)
		for range len(in) {
			r := <-in
			batch.Append(r.tablet, r.entries, nil)
			waiting = append(waiting, r)
		}
		err := s.Append(batch)
		for _, r := range waiting {
			r.done <- err
		}
	}
}

// writers starts both drains and returns their channels.
func writers(b *testing.B, s *store.Store) (logs chan appendRequest, state chan request) {
	logs, state = make(chan appendRequest, 4096), make(chan request, 4096)
	var running sync.WaitGroup
	running.Go(func() { drainAppends(s, logs) })
	running.Go(func() { drain(s.StateWriter().Commit, state) })
	b.Cleanup(func() {
		close(logs)
		close(state)
		running.Wait()
	})
	return logs, state
}

// BenchmarkCommit is the write path of single-cell operations without actors: each of n callers
// repeatedly appends an entry to its own Raft log, waits for the sync, applies the effects and the
// applied record, and waits for that too.
func BenchmarkCommit(b *testing.B) {
	for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
		for _, callers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("delay=%s/callers=%d", delay, callers), func(b *testing.B) {
				s := open(b, b.TempDir(), func(o *store.Options) { o.SyncDelay = delay })
				benchCommit(b, s, callers)
			})
		}
	}
}

func benchCommit(b *testing.B, s *store.Store, callers int) {
	logs, state := writers(b, s)
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	// a barrier for each, which is not measured
	for tablet := range uint64(callers + runtime.GOMAXPROCS(0)) {
		begin(b, s, 100+tablet)
	}
	var caller atomic.Uint64
	before := s.Stats()
	b.ReportAllocs()
	b.ResetTimer()
	body := func(next func() bool) {
		tablet, done, value := 99+caller.Add(1), make(chan error, 1), make([]byte, benchValue)
		for n := uint64(1); next(); n++ {
			if err := benchOp(tablet, n, value, logs, state, done); err != nil {
				b.Error(err)
				return
			}
		}
	}
	if callers == 1 {
		n := 0
		body(func() bool { n++; return n <= b.N })
	} else {
		b.RunParallel(func(p *testing.PB) { body(p.Next) })
	}
	b.StopTimer()
	after := s.Stats()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(after.Log.Syncs.Count()-before.Log.Syncs.Count())/float64(b.N), "syncs/op")
}

// benchOp is one operation: append, wait, apply, wait.
func benchOp(tablet, n uint64, value []byte, logs chan<- appendRequest, state chan<- request,
	done chan error) error {
	c := mvcc.Cell{Table: 16, Row: fmt.Sprintf("row %d.%d", tablet, n), Column: "c"}
	w := mvcc.Write{
		CommitTS: mvcc.Timestamp(n + 1), StartTS: mvcc.Timestamp(n), Kind: mvcc.KindPut,
		Value: value,
	}
	key, encoded := store.EncodeMutation(&mvcc.Mutation{Group: mvcc.GroupWrite, Cell: c, Write: &w})
	at := store.Applied{Index: store.InitialIndex + n, Term: store.InitialTerm, Epoch: 1}
	logs <- appendRequest{
		tablet, []*raftpb.Entry{entry(at.Index, at.Term, append(key, encoded...))}, done,
	}
	if err := <-done; err != nil {
		return err
	}
	batch := new(store.Batch)
	batch.Put(key, encoded)
	batch.PutApplied(tablet, at)
	state <- request{batch, done}
	return <-done
}

// BenchmarkCheckpoint measures one checkpoint after each of 64 commits to as many tablets.
func BenchmarkCheckpoint(b *testing.B) {
	const tablets = 64
	s := open(b, b.TempDir())
	for tablet := range uint64(tablets) {
		begin(b, s, 100+tablet)
	}
	logs, state := writers(b, s)
	done, value := make(chan error, 1), make([]byte, benchValue)
	b.ResetTimer()
	b.StopTimer()
	for n := range b.N {
		for tablet := range uint64(tablets) {
			if err := benchOp(100+tablet, uint64(n)+1, value, logs, state, done); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		if err := s.Checkpoint(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
	}
}

// badgerDB opens a plain Badger database with its own defaults and synced writes, for the
// denominators.
func badgerDB(b *testing.B) *badger.DB {
	db, err := badger.Open(badger.DefaultOptions(b.TempDir()).WithSyncWrites(true).WithLogger(nil))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// BenchmarkBadgerUpdate is the first denominator: 64 goroutines with one synced Update each,
// without group commit.
func BenchmarkBadgerUpdate(b *testing.B) {
	db := badgerDB(b)
	var n atomic.Uint64
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(p *testing.PB) {
		value := make([]byte, benchValue)
		for p.Next() {
			key := fmt.Appendf(nil, "row %d", n.Add(1))
			if err := db.Update(func(txn *badger.Txn) error {
				return txn.Set(key, value)
			}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkBadgerGrouped is the second denominator: 64 callers whose waiting updates share one
// synced Txn of Badger.
func BenchmarkBadgerGrouped(b *testing.B) {
	db := badgerDB(b)
	benchGrouped(b, func(batches []*store.Batch) error {
		return db.Update(func(txn *badger.Txn) error {
			for _, batch := range batches {
				if err := store.AddTo(txn, batch); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// BenchmarkGrouped has 64 callers whose waiting batches share one Commit of this package.
func BenchmarkGrouped(b *testing.B) {
	s := open(b, b.TempDir())
	benchGrouped(b, s.StateWriter().Commit)
}

func benchGrouped(b *testing.B, commit func([]*store.Batch) error) {
	in, ended := make(chan request, 4096), make(chan struct{})
	go func() { drain(commit, in); close(ended) }()
	defer func() { close(in); <-ended }()
	var n atomic.Uint64
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		value, done := make([]byte, benchValue), make(chan error, 1)
		for p.Next() {
			batch := new(store.Batch)
			batch.Put(fmt.Appendf(nil, "row %d", n.Add(1)), value)
			in <- request{batch, done}
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkSnap is the read path: a Snap, and lookups of existing and missing cells.
func BenchmarkSnap(b *testing.B) {
	s := open(b, b.TempDir(), func(o *store.Options) { o.NoSync = true })
	const rows = 400_000
	at := func(i int) mvcc.Cell { return cell(fmt.Sprintf("row %07d", i), "c") }
	value := make([]byte, benchValue)
	for i := 0; i < rows; {
		batch := new(store.Batch)
		for range 1000 {
			w := mvcc.Write{
				CommitTS: mvcc.Timestamp(i + 2), StartTS: mvcc.Timestamp(i + 1), Kind: mvcc.KindPut,
				Value: value,
			}
			batch.PutMutation(&mvcc.Mutation{Group: mvcc.GroupWrite, Cell: at(i), Write: &w})
			i++
		}
		commit(b, s, batch)
	}
	cells := make([]mvcc.Cell, 1<<14)
	for i := range cells {
		cells[i] = at(i * 7919 % rows)
	}
	run := func(name string, fn func(snap *store.Snap, c mvcc.Cell) (bool, error)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				snap := s.Snap()
				defer snap.Close()
				for i := 0; p.Next(); i++ {
					if _, err := fn(snap, cells[i%len(cells)]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	run("present", func(snap *store.Snap, c mvcc.Cell) (bool, error) {
		_, ok, err := snap.Newest(c)
		return ok, err
	})
	run("absent", func(snap *store.Snap, c mvcc.Cell) (bool, error) {
		c.Row += "x"
		_, ok, err := snap.Newest(c)
		return ok, err
	})
	run("rolledback", func(snap *store.Snap, c mvcc.Cell) (bool, error) {
		return snap.RolledBack(c, 5)
	})
	run("older", func(snap *store.Snap, c mvcc.Cell) (bool, error) {
		for _, err := range snap.Older(c, 5) {
			return true, err
		}
		return false, nil
	})
	run("open", func(_ *store.Snap, c mvcc.Cell) (bool, error) {
		snap := s.Snap()
		defer snap.Close()
		return true, nil
	})
	run("scan of 100", func(snap *store.Snap, c mvcc.Cell) (bool, error) {
		n := 0
		for _, err := range snap.Cells(mvcc.Span{Table: c.Table, Start: c.Row}, false) {
			if n++; n == 100 || err != nil {
				return true, err
			}
		}
		return true, nil
	})
}

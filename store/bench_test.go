package store_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// The figures of docs/adr/0002: go test ./store -run '^$' -bench . -benchtime 3s -count 3

const benchValue = 100 // bytes

// request is a batch that a caller wants committed.
type request struct {
	batch *store.Batch
	done  chan error
	lazy  bool
}

// drain commits whatever waits, all at once, until the channel is closed: what the log actor does. Lazy batches go first,
// so that nobody who needs no sync waits for one.
func drain(commit func([]*store.Batch) error, in <-chan request) {
	var lazy, synced []request
	var batches []*store.Batch
	flush := func(waiting []request) {
		if len(waiting) == 0 {
			return
		}
		batches = batches[:0]
		for _, r := range waiting {
			batches = append(batches, r.batch)
		}
		err := commit(batches)
		for _, r := range waiting {
			r.done <- err
		}
	}
	for r := range in {
		lazy, synced = lazy[:0], synced[:0]
		for n := len(in); ; n-- {
			if r.lazy {
				lazy = append(lazy, r)
			} else {
				synced = append(synced, r)
			}
			if n <= 0 {
				break
			}
			r = <-in
		}
		flush(lazy)
		flush(synced)
	}
}

// writers starts one drain per database and returns how to reach them.
func writers(b *testing.B, s *store.Store) (logs, state chan request) {
	logs = make(chan request, 4096)
	state = logs
	ended := make(chan struct{}, 2)
	run := func(w *store.Writer, in chan request) { drain(w.Commit, in); ended <- struct{}{} }
	go run(s.LogWriter(), logs)
	n := 1
	if s.StateWriter() != s.LogWriter() {
		state = make(chan request, 4096)
		go run(s.StateWriter(), state)
		n = 2
	}
	b.Cleanup(func() {
		close(logs)
		if n == 2 {
			close(state)
		}
		for range n {
			<-ended
		}
	})
	return logs, state
}

// BenchmarkCommit is the write path of single-cell operations without actors: each of so many callers appends an entry to
// a Raft log of its own, waits for the sync, applies the effects and the applied record, waits for that too, and goes on.
// lazy: the apply needs no sync of its own.
func BenchmarkCommit(b *testing.B) {
	for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
		for _, callers := range []int{1, 64, 512} {
			for _, v := range []struct {
				name           string
				separate, lazy bool
			}{{name: "separate", separate: true}, {name: "shared"}, {name: "lazy", lazy: true}} {
				b.Run(fmt.Sprintf("delay=%s/callers=%d/%s", delay, callers, v.name), func(b *testing.B) {
					s := open(b, b.TempDir(), func(o *store.Options) { o.SeparateLog, o.SyncDelay = v.separate, delay })
					benchCommit(b, s, callers, v.lazy)
				})
			}
		}
	}
}

func benchCommit(b *testing.B, s *store.Store, callers int, lazy bool) {
	logs, state := writers(b, s)
	var caller atomic.Uint64
	before := s.Stats()
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	body := func(next func() bool) {
		tablet := 100 + caller.Add(1)
		done := make(chan error, 1)
		init := new(store.Batch)
		store.InitialLog(init, tablet, store.InitialIndex, store.InitialTerm)
		logs <- request{init, done, false}
		if err := <-done; err != nil {
			b.Error(err)
			return
		}
		l, err := s.OpenLog(tablet)
		if err != nil {
			b.Error(err)
			return
		}
		value := make([]byte, benchValue)
		for n := uint64(1); next(); n++ {
			if err := benchOp(l, tablet, n, value, lazy, logs, state, done); err != nil {
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
	b.ReportMetric(float64(after.Syncs-before.Syncs)/float64(b.N), "syncs/op")
}

// benchOp is one operation: append, wait, apply, wait.
func benchOp(l *store.Log, tablet, n uint64, value []byte, lazy bool, logs, state chan request, done chan error) error {
	c := mvcc.Cell{Table: 16, Row: fmt.Sprintf("row %d.%d", tablet, n), Column: "c"}
	w := mvcc.Write{CommitTS: mvcc.Timestamp(n + 1), StartTS: mvcc.Timestamp(n), Kind: mvcc.KindPut, Value: value}
	key, encoded := store.EncodeMutation(&mvcc.Mutation{Group: mvcc.GroupWrite, Cell: c, Write: &w})
	entries := []*raftpb.Entry{entry(store.InitialIndex+n, store.InitialTerm, append(key, encoded...))}
	batch := new(store.Batch)
	l.Append(batch, entries, nil)
	logs <- request{batch, done, false}
	if err := <-done; err != nil {
		return err
	}
	l.Appended(entries, nil)
	batch = new(store.Batch)
	batch.Put(key, encoded)
	batch.PutApplied(tablet, store.Applied{Index: store.InitialIndex + n, Term: store.InitialTerm, Epoch: 1})
	if lazy {
		batch.SetLazy()
	}
	state <- request{batch, done, lazy}
	return <-done
}

// badgerDB opens a plain Badger database with its own defaults and synced writes, for the denominators.
func badgerDB(b *testing.B) *badger.DB {
	db, err := badger.Open(badger.DefaultOptions(b.TempDir()).WithSyncWrites(true).WithLogger(nil))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// BenchmarkBadgerUpdate is the first denominator: 64 goroutines with one synced Update each, no group commit.
func BenchmarkBadgerUpdate(b *testing.B) {
	db := badgerDB(b)
	var n atomic.Uint64
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(p *testing.PB) {
		value := make([]byte, benchValue)
		for p.Next() {
			key := fmt.Appendf(nil, "row %d", n.Add(1))
			if err := db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) }); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkBadgerGrouped is the second: 64 callers, whatever waits goes into one synced Txn of Badger's own.
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

// BenchmarkGrouped is the same through this package.
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
			in <- request{batch, done, false}
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkSnap is the read path: a Snap, and lookups of cells that are there and that are not.
func BenchmarkSnap(b *testing.B) {
	s := open(b, b.TempDir(), func(o *store.Options) { o.NoSync = true })
	const rows = 400_000
	at := func(i int) mvcc.Cell { return cell(fmt.Sprintf("row %07d", i), "c") }
	value := make([]byte, benchValue)
	for i := 0; i < rows; {
		batch := new(store.Batch)
		for range 1000 {
			w := mvcc.Write{CommitTS: mvcc.Timestamp(i + 2), StartTS: mvcc.Timestamp(i + 1), Kind: mvcc.KindPut, Value: value}
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
	run("present", func(snap *store.Snap, c mvcc.Cell) (bool, error) { _, ok, err := snap.Newest(c); return ok, err })
	run("absent", func(snap *store.Snap, c mvcc.Cell) (bool, error) {
		c.Row += "x"
		_, ok, err := snap.Newest(c)
		return ok, err
	})
	run("rolledback", func(snap *store.Snap, c mvcc.Cell) (bool, error) { return snap.RolledBack(c, 5) })
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

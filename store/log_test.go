package store_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/store"
)

// logFixture is a log over a store, with appends that wait for their commit.
type logFixture struct {
	t   *testing.T
	s   *store.Store
	log *store.Log
}

func newLog(t *testing.T, dir string) *logFixture {
	f := &logFixture{t: t, s: open(t, dir)}
	b := new(store.Batch)
	store.InitialLog(b, 3, store.InitialIndex, store.InitialTerm)
	f.commit(b)
	f.reopen()
	return f
}

func (f *logFixture) commit(batches ...*store.Batch) {
	f.t.Helper()
	if err := f.s.LogWriter().Commit(batches); err != nil {
		f.t.Fatal(err)
	}
}

func (f *logFixture) reopen() {
	f.t.Helper()
	l, err := f.s.OpenLog(3)
	if err != nil {
		f.t.Fatal(err)
	}
	f.log = l
}

// run returns the entries [from, to] of a term, with data that names them.
func run(term, from, to uint64) (out []*raftpb.Entry) {
	for i := from; i <= to; i++ {
		out = append(out, entry(i, term, fmt.Appendf(nil, "%d.%d", term, i)))
	}
	return out
}

func hard(term, commit uint64) *raftpb.HardState {
	vote := uint64(1)
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func (f *logFixture) append(entries []*raftpb.Entry, hs *raftpb.HardState) {
	f.t.Helper()
	b := new(store.Batch)
	f.log.Append(b, entries, hs)
	f.commit(b)
	f.log.Appended(entries, hs)
}

// check compares the readable log with terms, the terms of its entries from first on: from memory, and again after
// reopening, from disk.
func (f *logFixture) check(first uint64, before uint64, terms ...uint64) {
	f.t.Helper()
	for _, from := range []string{"memory", "disk"} {
		last := first + uint64(len(terms)) - 1
		if got, _ := f.log.FirstIndex(); got != first {
			f.t.Errorf("%s: first index %d, want %d", from, got, first)
		}
		if got, _ := f.log.LastIndex(); got != last {
			f.t.Errorf("%s: last index %d, want %d", from, got, last)
		}
		if got, err := f.log.Term(first - 1); got != before || err != nil {
			f.t.Errorf("%s: term before the first: %d, %v, want %d", from, got, err, before)
		}
		entries, err := f.log.Entries(first, last+1, math.MaxUint64)
		if err != nil && len(terms) > 0 || len(entries) != len(terms) {
			f.t.Errorf("%s: %d entries, %v, want %d", from, len(entries), err, len(terms))
			return
		}
		for i, e := range entries {
			index := first + uint64(i)
			want := fmt.Sprintf("%d.%d", terms[i], index)
			if e.GetIndex() != index || e.GetTerm() != terms[i] || string(e.Data) != want {
				f.t.Errorf("%s: entry %d is %v", from, index, e)
			}
			if term, err := f.log.Term(index); term != terms[i] || err != nil {
				f.t.Errorf("%s: term of %d: %d, %v", from, index, term, err)
			}
		}
		f.reopen()
	}
}

func TestLogAppendAndOverwrite(t *testing.T) {
	f := newLog(t, t.TempDir())
	f.check(11, store.InitialTerm)
	f.append(run(6, 11, 14), hard(6, 12))
	f.check(11, store.InitialTerm, 6, 6, 6, 6)
	f.append(run(7, 13, 13), hard(7, 13)) // 14 goes with the same batch
	f.check(11, store.InitialTerm, 6, 6, 7)
	f.append(run(7, 14, 15), nil)
	f.check(11, store.InitialTerm, 6, 6, 7, 7, 7)
	hs, cs, err := f.log.InitialState()
	if err != nil || hs.GetTerm() != 7 || hs.GetCommit() != 13 || hs.GetVote() != 1 || cs == nil {
		t.Errorf("initial state %v, %v, %v", hs, cs, err)
	}
}

// Appends overtake one another's commits: what is deleted counts what was put into batches, not what is readable.
func TestLogPipelined(t *testing.T) {
	f := newLog(t, t.TempDir())
	first, second, third := new(store.Batch), new(store.Batch), new(store.Batch)
	f.log.Append(first, run(6, 11, 16), nil)
	f.log.Append(second, run(7, 12, 12), hard(7, 11))
	f.log.Append(third, run(7, 13, 13), nil)
	if _, err := f.log.Entries(11, 12, 100); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("entries before their commit: %v", err)
	}
	f.commit(first, second, third)
	f.log.Appended(run(6, 11, 16), nil)
	f.log.Appended(run(7, 12, 12), hard(7, 11))
	f.log.Appended(run(7, 13, 13), nil)
	f.check(11, store.InitialTerm, 6, 7, 7)
}

func TestLogTruncate(t *testing.T) {
	f := newLog(t, t.TempDir())
	f.append(run(6, 11, 20), hard(6, 20))
	truncate := func(to, want uint64) {
		t.Helper()
		b := new(store.Batch)
		got, err := f.log.Truncate(b, to)
		if got != want || err != nil {
			t.Fatalf("truncate to %d: %d, %v, want %d", to, got, err, want)
		}
		f.commit(b)
		f.log.Truncated(got)
	}
	truncate(17, 17)
	f.check(18, 6, 6, 6, 6)
	truncate(17, 0)
	if _, err := f.log.Entries(17, 19, 100); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("entries that are gone: %v", err)
	}
	if _, err := f.log.Term(16); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("term of an entry that is gone: %v", err)
	}
	truncate(99, 20)
	f.check(21, 6)
	f.append(run(7, 21, 21), nil)
	f.check(21, 6, 7)
}

// Pages end at the size asked for, but hold one entry at least; what the cache has dropped comes from disk.
func TestLogPages(t *testing.T) {
	f := newLog(t, t.TempDir())
	f.append(run(6, 11, 3010), hard(6, 11))
	for pass := range 2 {
		for lo := uint64(11); lo <= 3010; {
			page, err := f.log.Entries(lo, 3011, 4000)
			if err != nil || len(page) == 0 || len(page) > 200 || page[0].GetIndex() != lo {
				t.Fatalf("pass %d: page at %d: %d entries, %v", pass, lo, len(page), err)
			}
			lo += uint64(len(page))
		}
		if page, err := f.log.Entries(11, 3011, 0); err != nil || len(page) != 1 {
			t.Errorf("a page of no size: %d entries, %v", len(page), err)
		}
		if page, err := f.log.Entries(11, 3011, math.MaxUint64); err != nil || len(page) != 3000 {
			t.Errorf("all: %d entries, %v", len(page), err)
		}
		f.reopen()
	}
}

// AppendSplit keeps every batch below the limit and the log whole after each, also when it overwrites a suffix.
func TestLogAppendSplit(t *testing.T) {
	for committed := range 8 {
		f := newLog(t, t.TempDir())
		f.append(run(6, 11, 90), hard(6, 20))
		entries := run(7, 21, 60)
		batches := f.log.AppendSplit(entries, hard(7, 55), 500)
		if len(batches) < 5 {
			t.Fatalf("%d batches", len(batches))
		}
		for i, b := range batches {
			if i > 0 && b.Size() > 500 { // the first also deletes the suffix
				t.Errorf("batch %d of %d bytes", i, b.Size())
			}
		}
		f.commit(batches[:min(committed, len(batches))]...)
		f.reopen() // fails on a gap, or on a commit index beyond the end
		hs, _, _ := f.log.InitialState()
		if last, _ := f.log.LastIndex(); committed > 0 && (hs.GetTerm() != 7 || last > 60) {
			t.Errorf("after %d batches: term %d, last %d", committed, hs.GetTerm(), last)
		}
	}
	f := newLog(t, t.TempDir())
	if got := f.log.AppendSplit(nil, hard(6, 10), 700); len(got) != 1 || got[0].Len() != 1 {
		t.Errorf("a HardState alone: %v", got)
	}
}

// Deletes of a long overwritten suffix do not make the batch of a long entry too large, and the log
// is whole after each of the batches.
func TestLogAppendSplitOverLongSuffix(t *testing.T) {
	const suffix = 6000
	for committed := range 4 {
		f := newLog(t, "")
		f.append(run(6, 11, 20+suffix), hard(6, 20))
		limit := f.s.MaxBatchBytes() - 64<<10
		long := entry(21, 7, make([]byte, limit-1000))
		batches := f.log.AppendSplit([]*raftpb.Entry{long, entry(22, 7, nil)}, hard(7, 22), limit)
		if len(batches) != 3 {
			t.Errorf("%d batches, want 2 of deletes and 1 of entries", len(batches))
		}
		for i, b := range batches {
			if b.Size() > f.s.MaxBatchBytes() {
				t.Fatalf("batch %d of %d bytes", i, b.Size())
			}
		}
		f.commit(batches[:committed]...)
		f.reopen() // fails on a gap, or on a commit index beyond the end
		hs, _, _ := f.log.InitialState()
		if last, _ := f.log.LastIndex(); committed > 0 && (hs.GetTerm() != 7 || last > 22 && committed > 1) {
			t.Errorf("after %d batches: term %d, last %d", committed, hs.GetTerm(), last)
		}
	}
}

// A Truncate adds no more than TruncateBytes.
func TestTruncateBytes(t *testing.T) {
	f := newLog(t, "")
	f.append(run(6, 11, 5010), hard(6, 5010))
	b := new(store.Batch)
	upTo, err := f.log.Truncate(b, 5010)
	if err != nil || upTo >= 5010 || b.Size() > store.TruncateBytes || b.Size() < store.TruncateBytes*9/10 {
		t.Errorf("up to %d: %d bytes, TruncateBytes is %d, %v", upTo, b.Size(), store.TruncateBytes, err)
	}
}

func TestLogDelete(t *testing.T) {
	f := newLog(t, t.TempDir())
	for i := uint64(0); i < 3; i++ {
		f.append(run(6, 11+i*3000, 10+(i+1)*3000), hard(6, 11))
	}
	for n := 0; ; n++ {
		b := new(store.Batch)
		done, err := f.log.Delete(b)
		if err != nil || n > 5 {
			t.Fatalf("turn %d: %v", n, err)
		}
		f.commit(b)
		if done {
			break
		}
		f.reopen()
	}
	if _, err := f.s.OpenLog(3); !errors.Is(err, store.ErrNoLog) {
		t.Errorf("a deleted log: %v", err)
	}
	snap := f.s.Snap()
	defer snap.Close()
	if n := store.CountPrefix(snap, "r"); n != 0 {
		t.Errorf("%d keys of the log are left", n)
	}
}

// A log with a gap, or that commits more than it holds, is not opened.
func TestLogCorrupt(t *testing.T) {
	for name, spoil := range map[string]func(l *store.Log, b *store.Batch){
		"commit beyond the end": func(l *store.Log, b *store.Batch) { l.Append(b, nil, hard(6, 99)) },
		"gap":                   func(_ *store.Log, b *store.Batch) { store.DeleteEntry(b, 3, 12) },
		"missing first":         func(_ *store.Log, b *store.Batch) { store.DeleteEntry(b, 3, 11) },
	} {
		f := newLog(t, t.TempDir())
		f.append(run(6, 11, 14), hard(6, 11))
		b := new(store.Batch)
		spoil(f.log, b)
		f.commit(b)
		if _, err := f.s.OpenLog(3); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

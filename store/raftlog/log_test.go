package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// small are options for tests that use many segments.
func small(d *memDir) Options {
	return Options{Create: true, SegmentBytes: minSegmentBytes, CacheBytes: 1, Spares: 2, fs: d}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open("log", o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t testing.TB, l *Log, fill func(b *Batch)) {
	t.Helper()
	b := new(Batch)
	fill(b)
	if err := l.Append(b); err != nil {
		t.Fatal(err)
	}
}

// run appends entries [from, to) of n bytes each, all committed, one batch each.
func run(t testing.TB, l *Log, replica, from, to uint64, size int) {
	t.Helper()
	for i := from; i < to; i++ {
		data := bytes.Repeat([]byte{byte(i)}, size)
		mustAppend(t, l, func(b *Batch) {
			b.Append(replica, []*raftpb.Entry{entry(i, 1, data)}, hardOf(1, 1, i))
		})
	}
}

// The log meets raft's requirements of storage.
func TestStorage(t *testing.T) {
	l := mustOpen(t, small(newMemDir()))
	r := l.Replica(7)
	if _, err := r.LastIndex(); !errors.Is(err, ErrNoReplica) {
		t.Fatalf("%v, want ErrNoReplica", err)
	}
	mustAppend(t, l, func(b *Batch) { b.Begin(7, Position{Index: 10, Term: 1}, nil) })
	if _, err := r.Entries(10, 11, 1); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("%v, want ErrCompacted", err)
	}
	run(t, l, 7, 11, 31, 1000)
	first, _ := r.FirstIndex()
	last, _ := r.LastIndex()
	hs, _, _ := r.InitialState()
	if first != 11 || last != 30 || hs.GetCommit() != 30 || hs.GetVote() != 1 {
		t.Errorf("[%d, %d], %v", first, last, hs)
	}
	mustAppend(t, l, func(b *Batch) { b.Checkpoint(7, 25, nil); b.Truncate(7, 20) })
	for _, c := range []struct {
		lo, hi, max uint64
		n           int
		err         error
	}{
		{20, 25, 1 << 20, 0, raft.ErrCompacted}, {21, 32, 1 << 20, 0, raft.ErrUnavailable},
		{21, 31, 1 << 20, 10, nil}, {21, 31, 0, 1, nil}, {25, 31, 2200, 2, nil},
		{25, 25, 0, 0, nil},
	} {
		got, err := r.Entries(c.lo, c.hi, c.max)
		if !errors.Is(err, c.err) || len(got) != c.n || c.n > 0 && got[0].GetIndex() != c.lo {
			t.Errorf("[%d, %d) of %d bytes: %d entries, %v", c.lo, c.hi, c.max, len(got), err)
		}
	}
	terms := map[uint64]error{19: raft.ErrCompacted, 20: nil, 30: nil, 31: raft.ErrUnavailable}
	for i, want := range terms {
		if term, err := r.Term(i); !errors.Is(err, want) || err == nil && term != 1 {
			t.Errorf("term of %d: %d, %v", i, term, err)
		}
	}
	if _, err := r.Snapshot(); !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		t.Error(err)
	}
}

// An invalid append is refused, and nothing of its batch is written.
func TestInvalid(t *testing.T) {
	l := mustOpen(t, small(newMemDir()))
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{Index: 10, Term: 2}, nil) })
	mustAppend(t, l, func(b *Batch) {
		b.Append(1, []*raftpb.Entry{entry(11, 2, nil), entry(12, 2, nil)}, hardOf(2, 5, 11))
	})
	before := l.Stats().Written
	for name, fill := range map[string]func(b *Batch){
		"no replica": func(b *Batch) { b.Checkpoint(2, 1, nil) },
		"a gap": func(b *Batch) {
			b.Append(1, []*raftpb.Entry{entry(14, 2, nil)}, nil)
		},
		"committed": func(b *Batch) {
			b.Append(1, []*raftpb.Entry{entry(11, 3, nil)}, nil)
		},
		"commit beyond":       func(b *Batch) { b.Append(1, nil, hardOf(2, 5, 13)) },
		"an older term":       func(b *Batch) { b.Append(1, nil, hardOf(1, 5, 11)) },
		"a second vote":       func(b *Batch) { b.Append(1, nil, hardOf(2, 4, 11)) },
		"truncate beyond":     func(b *Batch) { b.Checkpoint(1, 12, nil); b.Truncate(1, 13) },
		"no checkpoint":       func(b *Batch) { b.Checkpoint(1, 11, nil); b.Truncate(1, 12) },
		"checkpoint beyond":   func(b *Batch) { b.Checkpoint(1, 13, nil) },
		"begins in the past":  func(b *Batch) { b.Begin(1, Position{Index: 9, Term: 1}, nil) },
		"destroyed, appended": func(b *Batch) { b.Destroy(1); b.Append(1, nil, hardOf(3, 0, 0)) },
	} {
		b := new(Batch)
		b.Note("nine", []byte("never"))
		fill(b)
		if err := l.Append(b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if st := l.Stats(); st.Written != before || len(l.Notes()) > 0 {
		t.Errorf("something was written: %+v", st)
	}
	b := &Batch{size: MaxBatchBytes + 1}
	b.Note("nine", nil)
	if err := l.Append(b); !errors.Is(err, ErrBatchTooLarge) {
		t.Errorf("%v, want ErrBatchTooLarge", err)
	}
}

// A batch larger than a segment gets a segment of its own.
func TestLargeBatch(t *testing.T) {
	d := newMemDir()
	l := mustOpen(t, small(d))
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
	run(t, l, 1, 1, 4, 3*minSegmentBytes)
	run(t, l, 1, 4, 10, 100)
	l = mustOpen(t, small(d))
	got, err := l.Replica(1).Entries(1, 10, 1<<40)
	if err != nil || len(got) != 9 || len(got[2].Data) != 3*minSegmentBytes {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	mustAppend(t, l, func(b *Batch) { b.Checkpoint(1, 9, nil) })
	mustAppend(t, l, func(b *Batch) { b.Truncate(1, 9) })
	if st := l.Stats(); st.Segments != 1 || st.Bytes != minSegmentBytes {
		t.Errorf("%+v: segments of their own size are not kept", st)
	}
}

// A segment is freed when no replica has an entry in it, and not before: entries whose effects are
// not in the state on disk cannot be truncated. Catches BROKEN=log_early_free.
func TestCheckpointKeeps(t *testing.T) {
	d := newMemDir()
	l := mustOpen(t, small(d))
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
	run(t, l, 1, 1, 500, 2000)
	mustAppend(t, l, func(b *Batch) { b.Checkpoint(1, 100, nil) })
	b := new(Batch)
	b.Truncate(1, 400)
	if err := l.Append(b); !errors.Is(err, ErrInvalid) {
		t.Errorf("EARLY-FREE: a truncation at 400 with a checkpoint at 100: %v, want ErrInvalid",
			err)
	}
	mustAppend(t, l, func(b *Batch) { b.Truncate(1, 100) })
	l = mustOpen(t, small(d))
	got, err := l.Replica(1).Entries(101, 500, 1<<40)
	if err != nil || len(got) != 399 || got[0].GetIndex() != 101 {
		t.Fatalf("EARLY-FREE: %d entries behind the checkpoint, want 399: %v", len(got), err)
	}
	before := l.Stats()
	mustAppend(t, l, func(b *Batch) { b.Checkpoint(1, 499, nil) })
	if st := l.Stats(); st.Segments != before.Segments {
		t.Errorf("%d segments, and %d before a checkpoint", st.Segments, before.Segments)
	}
	mustAppend(t, l, func(b *Batch) { b.Truncate(1, 499) })
	if st := l.Stats(); st.Segments >= before.Segments || st.Segments > 3 {
		t.Errorf("%d segments, and %d before the truncation", st.Segments, before.Segments)
	}
}

// A vote survives the segment that it was written to.
func TestHardStateStays(t *testing.T) {
	d := newMemDir()
	l := mustOpen(t, small(d))
	mustAppend(t, l, func(b *Batch) {
		b.Begin(1, Position{}, nil)
		b.Begin(2, Position{}, nil)
		b.Append(2, nil, hardOf(8, 3, 0))
		b.Note("five", []byte("gone"))
	})
	run(t, l, 1, 1, 1000, 2000)
	mustAppend(t, l, func(b *Batch) { b.Checkpoint(1, 999, nil); b.Truncate(1, 999) })
	l = mustOpen(t, small(d))
	if n := l.segments[0].sequence; n < 3 {
		t.Fatalf("the log still begins with segment %d", n)
	}
	hs, _, err := l.Replica(2).InitialState()
	if err != nil || hs.GetTerm() != 8 || hs.GetVote() != 3 {
		t.Errorf("FORGOTTEN: the vote for 3 in term 8 is %v, %v", hs, err)
	}
	if string(l.Notes()["five"]) != "gone" {
		t.Errorf("notes %v", l.Notes())
	}
}

// The remains of an earlier use of a file behind its end are never read as the log's.
func TestStaleFrames(t *testing.T) {
	d := newMemDir()
	l := mustOpen(t, small(d))
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
	used, sequence, recycled := map[file]bool{}, uint64(0), 0
	// Frames of one length: old ones begin at the offsets of new ones.
	for index := uint64(1); recycled < 6; index++ {
		run(t, l, 1, index, index+1, 2000)
		mustAppend(t, l, func(b *Batch) { b.Checkpoint(1, index, nil); b.Truncate(1, index) })
		s := l.segments[len(l.segments)-1]
		if s.sequence == sequence {
			continue
		}
		sequence = s.sequence
		if !used[s.file] {
			used[s.file] = true
			continue
		}
		recycled++
		again, err := Open("log", small(d.copy())) // as after a kill
		if err != nil {
			t.Fatalf("STALE: %v", err)
		}
		if st := again.Replicas(); len(st) != 1 || st[0].Last != index {
			t.Fatalf("STALE: the log goes up to %+v, and %d was written", st, index)
		}
	}
}

// A few entries of one replica do not retain everything written since.
func TestRewrite(t *testing.T) {
	d := newMemDir()
	l := mustOpen(t, small(d))
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil); b.Begin(2, Position{}, nil) })
	run(t, l, 2, 1, 20, 500)
	for i := uint64(1); i < 4000; i += 100 {
		run(t, l, 1, i, i+100, 2000)
		mustAppend(t, l, func(b *Batch) { b.Checkpoint(1, i+99, nil); b.Truncate(1, i+99) })
		for l.Stats().Bytes > 6*minSegmentBytes {
			if _, err := l.Rewrite(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		if st := l.Stats(); st.Bytes > 7*minSegmentBytes || st.LiveBytes > 19*600 || st.Spares > 2 {
			t.Errorf("%+v, want at most 7 segments' bytes, 19*600 live, 2 spares", st)
		}
		got, err := l.Replica(2).Entries(1, 20, 1<<40)
		if err != nil || len(got) != 19 || !bytes.Equal(got[4].Data, bytes.Repeat([]byte{5}, 500)) {
			t.Fatalf("%d entries, %v", len(got), err)
		}
		l = mustOpen(t, small(d))
	}
}

// A log that may not grow is still opened, and accepts any batch that frees space, of any size.
func TestNoRoom(t *testing.T) {
	o := small(newMemDir())
	o.Room = func(int64) error { return ErrDiskFull }
	l := mustOpen(t, o)
	figures := make([]byte, 2*reserveBytes)
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, figures) })
	for i := range 100 {
		mustAppend(t, l, func(b *Batch) { b.Note(fmt.Sprint(i%3), []byte{1}) })
	}
	b := new(Batch)
	b.Append(1, []*raftpb.Entry{entry(1, 1, make([]byte, 2*minSegmentBytes))}, nil)
	if err := l.Append(b); !errors.Is(err, ErrDiskFull) {
		t.Errorf("%v, want ErrDiskFull", err)
	}
	if st := l.Stats(); st.Bytes > 2*minSegmentBytes {
		t.Errorf("%+v, want at most 2 segments' bytes", st)
	}
	l = mustOpen(t, o)
	if st := l.Replicas(); len(st) != 1 || len(st[0].Figures) != len(figures) {
		t.Errorf("%d replicas", len(st))
	}
}

// A full disk is reported before anything is written, does not prevent a write that frees space,
// and ends once there is space.
func TestDiskFull(t *testing.T) {
	d := newMemDir()
	d.room = 4 * minSegmentBytes
	l := mustOpen(t, small(d))
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
	index, refused := uint64(1), new(Batch)
	for ; ; index++ {
		*refused = Batch{}
		refused.Append(1, []*raftpb.Entry{entry(index, 1, make([]byte, 5000))}, hardOf(1, 1, index))
		if err := l.Append(refused); errors.Is(err, ErrDiskFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Append(refused); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("%v, want ErrDiskFull again", err)
	}
	if st := l.Replicas()[0]; st.Last != index-1 || index < 100 {
		t.Fatalf("%+v after %d entries", st, index-1)
	}
	again, err := Open("log", Options{fs: d.copy()})
	if err != nil || again.Replicas()[0].Last != index-1 {
		t.Fatalf("a full disk cannot be opened: %v", err)
	}
	mustAppend(t, l, func(b *Batch) { b.Checkpoint(1, index-1, nil); b.Truncate(1, index-1) })
	if err := l.Append(refused); err != nil {
		t.Fatalf("there is space: %v", err)
	}
	got, err := l.Replica(1).Entries(index, index+1, 1<<20)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
}

// After a failed write or sync nothing is written any more, also if the next one would succeed.
func TestFailedWriteIsTheLast(t *testing.T) {
	for _, what := range []string{"short write", "sync"} {
		t.Run(what, func(t *testing.T) {
			d := newMemDir()
			l := mustOpen(t, small(d))
			mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
			broken := errors.New("input/output error")
			if what == "sync" {
				d.failSync = func(string) error { return broken }
			} else {
				d.failWrite = func(_ string, n int) (int, error) { return n / 2, broken }
			}
			b := new(Batch)
			b.Append(1, []*raftpb.Entry{entry(1, 1, make([]byte, 2000))}, hardOf(1, 1, 1))
			if err := l.Append(b); !errors.Is(err, ErrFailed) || !errors.Is(err, broken) {
				t.Fatalf("%v, want ErrFailed for %v", err, broken)
			}
			d.failSync, d.failWrite = nil, nil
			if err := l.Append(b); !errors.Is(err, ErrFailed) {
				t.Fatalf("%v, want ErrFailed", err)
			}
			if last, err := l.Replica(1).LastIndex(); last != 0 || err != nil {
				t.Errorf("what failed is visible: %d, %v", last, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if l := mustOpen(t, small(d)); len(l.Replicas()) != 1 {
				t.Error("the replica is lost")
			}
		})
	}
}

// Directories that are no log, or another program's, are distinguished.
func TestForeign(t *testing.T) {
	if _, err := Open("log", Options{fs: newMemDir()}); !errors.Is(err, ErrNoLog) {
		t.Errorf("%v, want ErrNoLog", err)
	}
	d, other := newMemDir(), newMemDir()
	for _, d := range []*memDir{d, other} {
		l := mustOpen(t, small(d))
		mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
		run(t, l, 1, 1, 300, 2000)
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range d.names {
			if !yield(name) {
				return
			}
		}
	})
	mixed := d.copy()
	mixed.names[names[1]].data = other.names[names[1]].data
	if _, err := Open("log", small(mixed)); !errors.Is(err, ErrForeign) {
		t.Errorf("a segment of another log: %v, want ErrForeign", err)
	}
	missing := d.copy()
	delete(missing.names, names[1])
	if _, err := Open("log", small(missing)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a segment is missing: %v, want ErrDamaged", err)
	}
	missing = d.copy()
	delete(missing.names, names[0])
	if _, err := Open("log", small(missing)); !errors.Is(err, ErrDamaged) {
		t.Errorf("the first segment is missing: %v, want ErrDamaged", err)
	}
	text := fmt.Sprint(&DamageError{Segment: "log/x.log", Offset: 12, What: "w"})
	if text != "raftlog: log is damaged: log/x.log at offset 12: w" {
		t.Error(text)
	}
}

package raftlog

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// TestReached: the reported position of a log increases with everything visible to other nodes,
// survives restarts, including failed ones, and does not decrease when segments are freed.
func TestReached(t *testing.T) {
	fs := newMemFS()
	open := func() *Log {
		t.Helper()
		l, err := Open("", Options{Create: true, SegmentBytes: minSegmentBytes, Spares: -1, fs: fs})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	append1 := func(l *Log, fill func(b *Batch)) {
		t.Helper()
		b := &Batch{}
		fill(b)
		if err := l.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	l := open()
	last := l.Reached()
	grows := func(what string, fill func(b *Batch)) {
		t.Helper()
		if append1(l, fill); l.Reached() <= last {
			t.Errorf("%s: %x, before it %x", what, l.Reached(), last)
		}
		last = l.Reached()
	}
	grows("begin", func(b *Batch) { b.Begin(1, Position{Index: 10, Term: 5}, nil) })
	grows("note", func(b *Batch) { b.Note("n", []byte("v")) })
	index := uint64(10)
	entry := func(b *Batch) {
		index++
		b.Append(1, []*raftpb.Entry{{
			Index: proto.Uint64(index), Term: proto.Uint64(5), Data: make([]byte, 64<<10),
		}}, nil)
	}
	for range 10 { // several segments
		grows("entry", entry)
	}
	grows("vote", func(b *Batch) {
		b.Append(1, nil, &raftpb.HardState{
			Term: proto.Uint64(6), Vote: proto.Uint64(2), Commit: proto.Uint64(10),
		})
	})
	append1(l, func(b *Batch) { b.Checkpoint(1, index, nil) })
	if l.Reached() != last {
		t.Error("a checkpoint is nothing that others are told of")
	}
	for range 3 {
		if l = open(); l.Reached() != last {
			t.Fatalf("after a restart %x, before it %x", l.Reached(), last)
		}
	}
	append1(l, func(b *Batch) { b.Truncate(1, index) })
	for range 3 {
		if l = open(); l.Reached() < last {
			t.Fatalf("with freed segments %x, before it %x", l.Reached(), last)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	last = l.Reached()
	l = open()
	grows("entry after it was closed", entry)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

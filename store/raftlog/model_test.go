package raftlog

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

var (
	seed   = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one")
	rounds = flag.Int("rounds", 150, "rounds of TestModel")
)

func random(t *testing.T) *rand.Rand {
	s := *seed
	if env, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); s == 0 && err == nil {
		s = env
	}
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("(seed %d)", s)
		}
	})
	return rand.New(rand.NewPCG(s, 1))
}

// model is the expected content of a log.
type model struct {
	replicas map[uint64]*modelReplica
	notes    map[string]string
}

type modelReplica struct {
	state   State
	entries map[uint64]*raftpb.Entry
}

func newModel() *model {
	return &model{replicas: map[uint64]*modelReplica{}, notes: map[string]string{}}
}

func (m *model) clone() *model {
	c := &model{replicas: map[uint64]*modelReplica{}, notes: maps.Clone(m.notes)}
	for id, r := range m.replicas {
		c.replicas[id] = &modelReplica{state: r.state, entries: maps.Clone(r.entries)}
	}
	return c
}

func entry(index, term uint64, data []byte) *raftpb.Entry {
	typ := raftpb.EntryNormal
	return &raftpb.Entry{Index: &index, Term: &term, Type: &typ, Data: data}
}

func hardOf(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// step adds one random change to the batch and to the model.
func (m *model) step(rng *rand.Rand, b *Batch) {
	id := 1 + rng.Uint64N(5)
	r := m.replicas[id]
	if r == nil {
		at := Position{Index: rng.Uint64N(20), Term: 1 + rng.Uint64N(3)}
		m.replicas[id] = &modelReplica{entries: map[uint64]*raftpb.Entry{}}
		m.replicas[id].begin(id, at)
		b.Begin(id, at, nil)
		return
	}
	s := &r.state
	switch k := rng.IntN(40); {
	case k < 24:
		r.append(rng, b)
	case k < 29 && s.Checkpoint > s.Truncated.Index:
		index := s.Truncated.Index + 1 + rng.Uint64N(s.Checkpoint-s.Truncated.Index)
		if e := r.entries[index]; e == nil || r.fresh(b, index) {
			return // its term is looked up in the log before the batch
		}
		b.Truncate(id, index)
		s.Truncated = Position{Index: index, Term: r.entries[index].GetTerm()}
	case k < 34 && s.Commit > s.Checkpoint:
		s.Checkpoint += 1 + rng.Uint64N(s.Commit-s.Checkpoint)
		s.Figures = fmt.Sprint("figures", s.Checkpoint)[:rng.IntN(7)]
		b.Checkpoint(id, s.Checkpoint, []byte(s.Figures))
	case k < 36:
		at := Position{
			Index: max(s.Last, s.Checkpoint) + rng.Uint64N(5), Term: s.Term + rng.Uint64N(2),
		}
		r.begin(id, at)
		s.Figures = "new"
		b.Begin(id, at, []byte(s.Figures))
	case k == 36:
		delete(m.replicas, id)
		b.Destroy(id)
	case k == 37:
		note := fmt.Sprint("note ", rng.Uint64())[:rng.IntN(10)]
		key := fmt.Sprint("key ", id)
		if delete(m.notes, key); note != "" {
			m.notes[key] = note
		}
		b.Note(key, []byte(note))
	}
	r.drop()
}

// fresh reports whether the batch itself adds the entry.
func (r *modelReplica) fresh(b *Batch, index uint64) bool {
	return slices.ContainsFunc(b.items, func(it item) bool {
		return it.replica == r.state.Replica &&
			(it.kind == itemEntry && it.at.Index == index || it.kind == itemBegin)
	})
}

func (r *modelReplica) begin(id uint64, at Position) {
	s := &r.state
	if s.Replica = id; s.Term < at.Term {
		s.Term, s.Vote = at.Term, 0
	}
	s.Commit = max(s.Commit, at.Index)
	s.Truncated, s.Checkpoint, s.Last, s.Figures = at, at.Index, at.Index, ""
	clear(r.entries)
}

func (r *modelReplica) append(rng *rand.Rand, b *Batch) {
	s := &r.state
	first := s.Last + 1
	if rng.IntN(6) == 0 {
		s.Term++
		s.Vote = 0
		first = max(s.Commit, s.Truncated.Index) + 1
		first += rng.Uint64N(s.Last + 2 - first)
	}
	var entries []*raftpb.Entry
	for i := range rng.Uint64N(5) {
		data := make([]byte, rng.IntN(3000)*rng.IntN(2))
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		if rng.IntN(200) == 0 {
			data = bytes.Repeat([]byte("large"), 60_000)
		}
		entries = append(entries, entry(first+i, s.Term, data))
	}
	if len(entries) > 0 {
		for i := first; i <= s.Last; i++ {
			delete(r.entries, i)
		}
		for _, e := range entries {
			r.entries[e.GetIndex()] = e
			s.Last = e.GetIndex()
		}
	}
	if s.Vote == 0 {
		s.Vote = rng.Uint64N(4)
	}
	s.Commit += rng.Uint64N(s.Last - s.Commit + 1)
	b.Append(s.Replica, entries, hardOf(s.Term, s.Vote, s.Commit))
}

func (r *modelReplica) drop() {
	for i := range r.entries {
		if i <= r.state.Truncated.Index {
			delete(r.entries, i)
		}
	}
}

// check compares the log with the model.
func (m *model) check(l *Log) error {
	var want []State
	for _, id := range slices.Sorted(maps.Keys(m.replicas)) {
		m.replicas[id].drop()
		want = append(want, m.replicas[id].state)
	}
	if got := l.Replicas(); !slices.Equal(got, want) {
		return fmt.Errorf("replicas are\n%+v, want\n%+v", got, want)
	}
	notes := map[string]string{}
	for key, note := range l.Notes() {
		notes[key] = string(note)
	}
	if !maps.Equal(notes, m.notes) {
		return fmt.Errorf("notes are %v, want %v", notes, m.notes)
	}
	for id, r := range m.replicas {
		if err := r.check(l.Replica(id)); err != nil {
			return fmt.Errorf("replica %d: %w", id, err)
		}
	}
	return nil
}

func (r *modelReplica) check(l *Replica) error {
	s := r.state
	kept := s.Truncated.Index
	if kept == s.Last {
		return nil
	}
	got, err := l.Entries(kept+1, s.Last+1, 1<<40)
	if err != nil {
		return err
	}
	for i, e := range got {
		want := r.entries[kept+1+uint64(i)]
		same := e.GetIndex() == want.GetIndex() && e.GetTerm() == want.GetTerm()
		if !same || !bytes.Equal(e.Data, want.Data) {
			return fmt.Errorf("entry %d of term %d, want %d of %d",
				e.GetIndex(), e.GetTerm(), want.GetIndex(), want.GetTerm())
		}
		if term, err := l.Term(e.GetIndex()); term != e.GetTerm() || err != nil {
			return fmt.Errorf("term of %d is %d, %w", e.GetIndex(), term, err)
		}
	}
	if uint64(len(got)) != s.Last-kept {
		return fmt.Errorf("%d entries, want (%d, %d]", len(got), kept, s.Last)
	}
	return nil
}

// A log that loses power at any operation, or is killed, holds everything acknowledged, and all or
// nothing of the batch under way.
func TestModel(t *testing.T) {
	rng := random(t)
	n := *rounds
	if testing.Short() {
		n /= 5
	}
	for round := range n {
		o := Options{
			Create: true, SegmentBytes: minSegmentBytes, CacheBytes: int64(rng.IntN(3)) * 20_000,
			Spares: rng.IntN(4) - 1,
		}
		if err := crashes(rng, o); err != nil {
			t.Fatalf("LOST: round %d: %v", round, err)
		}
	}
}

func crashes(rng *rand.Rand, o Options) error {
	d := newMemDir()
	m := newModel()
	var open *model // m and the batch under way when the power failed
	for life := range 8 {
		o.fs = d
		d.cutAfter = []int{-1, 1 + rng.IntN(15), 1 + rng.IntN(300)}[rng.IntN(3)]
		l, err := Open("log", o)
		if err != nil && !errors.Is(err, errCut) {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if err == nil {
			if err := m.check(l); err != nil {
				if open == nil || open.check(l) != nil {
					return fmt.Errorf("life %d: %w", life, err)
				}
				m = open
			}
			if m, open, err = live(rng, l, m); err != nil {
				return fmt.Errorf("life %d: %w", life, err)
			}
		}
		if rng.IntN(3) == 0 {
			d = d.kill()
		} else {
			d = d.crash(rng)
		}
	}
	return nil
}

// live appends random batches until the power fails, or a random number of them.
func live(rng *rand.Rand, l *Log, m *model) (after, open *model, err error) {
	for range rng.IntN(250) {
		if rng.IntN(20) == 0 {
			if _, err := l.Rewrite(); errors.Is(err, errCut) {
				return m, nil, nil
			} else if err != nil {
				return nil, nil, err
			}
			continue
		}
		next, b := m.clone(), new(Batch)
		for range 1 + rng.IntN(8) {
			next.step(rng, b)
		}
		switch err := l.Append(b); {
		case errors.Is(err, errCut):
			return m, next, nil
		case err != nil:
			return nil, nil, err
		}
		m = next
	}
	if err := m.check(l); err != nil {
		return nil, nil, err
	}
	if rng.IntN(2) == 0 {
		if err := l.Close(); err != nil && !errors.Is(err, errCut) {
			return nil, nil, err
		}
	}
	return m, nil, nil
}

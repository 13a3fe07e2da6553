package raftlog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// smallLog creates a log of two segments with a few replicas and returns it, closed or not, with
// its content.
func smallLog(t testing.TB, rng *rand.Rand, closed bool) (*memDir, *model) {
	d, m := newMemDir(), newModel()
	for life := range 2 {
		l := mustOpen(t, small(d))
		for range 20 {
			b, next := new(Batch), m.clone()
			for range 3 {
				next.step(rng, b)
			}
			if b.Size() > 1500 {
				continue
			}
			if err := l.Append(b); err != nil {
				t.Fatal(err)
			}
			m = next
		}
		if closed || life == 0 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d, m
}

// before returns the last segment from before Open; nil: it was not needed and is gone.
func before(l *Log) *segment {
	if len(l.segments) < 2 {
		return nil
	}
	return l.segments[len(l.segments)-2]
}

// frameOf returns which frame of a segment contains an offset, and the number of frames; -1: the
// header.
func frameOf(f *memFile, place int64) (number, count int, at int64) {
	h, err := decodeHeader(f.data)
	if err != nil {
		return 0, 0, 0
	}
	number = -1
	for o := headerBytes; ; count++ {
		fr, ok := readable(f.data, h.seed(), o)
		if !ok {
			break
		}
		if o <= place {
			number, at = count, o
		}
		o += fr.span()
	}
	return number, count, at
}

// A flipped bit anywhere is detected, with the segment and the offset, or is harmless: in the last
// frame of a closed log, which is empty, in padding, and in unused space.
func TestBitFlips(t *testing.T) {
	d, m := smallLog(t, random(t), true)
	noticed, step := 0, int64(1)
	if testing.Short() {
		step = 5
	}
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		f := d.names[name]
		end := int64(len(f.data))
		if s := before(mustOpen(t, small(d.copy()))); s != nil && s.name == name {
			end = s.end + 512 // unused space behind it
		}
		for place := int64(0); place < end; place += step {
			bit := byte(1) << (place % 8)
			f.data[place] ^= bit
			l, err := Open("log", small(d.copy()))
			f.data[place] ^= bit
			var damage *DamageError
			switch {
			case errors.As(err, &damage):
				noticed++
				_, _, at := frameOf(f, place)
				if base := filepath.Base(damage.Segment); base != name || damage.Offset != at {
					t.Fatalf("%s at %d is damaged: %v, want offset %d", name, place, err, at)
				}
			case err != nil && !errors.Is(err, ErrForeign):
				t.Fatalf("%s at %d is damaged: %v", name, place, err)
			case err == nil:
				number, count, at := frameOf(f, place)
				padding := place >= at+frameHead // of an intact frame
				if err := m.check(l); err != nil || number != count-1 && !padding {
					t.Fatalf("UNNOTICED: %s is damaged at %d, in frame %d of %d: %v",
						name, place, number, count, err)
				}
			}
		}
	}
	if noticed < 100 {
		t.Errorf("only %d damaged bytes were noticed", noticed)
	}
}

// A log that was not closed ends with a frame that may have been synced or not: damage there must
// be treated as its end. Damage to any other frame is an error.
func TestDamageBeforeTheEnd(t *testing.T) {
	d, _ := smallLog(t, random(t), false)
	name := slices.Max(slices.Collect(maps.Keys(d.names)))
	f := d.names[name]
	_, count, last := frameOf(f, int64(len(f.data)))
	for number, at := 0, headerBytes; number < count; number++ {
		fr, _ := readable(f.data, mustSeed(t, f), at)
		for _, place := range []int64{0, 5, 9, 13, frameHead, frameHead + int64(fr.length) - 1} {
			f.data[at+place] ^= 0x40
			l, err := Open("log", small(d.copy()))
			f.data[at+place] ^= 0x40
			var damage *DamageError
			if at < last && (!errors.As(err, &damage) || damage.Offset != at ||
				!strings.HasSuffix(damage.Segment, name)) {
				t.Errorf("UNNOTICED: frame %d of %d, at %d: %v", number, count, at, err)
			}
			if errors.Is(err, ErrDamaged) && at == last {
				continue // it had released a segment, which is now missing
			}
			if at == last && (err != nil || before(l) != nil && before(l).end != last) {
				t.Errorf("the last frame, at %d: %v", at, err)
			}
		}
		at += fr.span()
	}
}

func mustSeed(t *testing.T, f *memFile) uint32 {
	h, err := decodeHeader(f.data)
	if err != nil {
		t.Fatal(err)
	}
	return h.seed()
}

// A frame some of whose blocks never reached the disk is not a frame.
func TestTornFrame(t *testing.T) {
	rng := random(t)
	for range 200 {
		d := newMemDir()
		l := mustOpen(t, small(d))
		mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
		run(t, l, 1, 1, 1+rng.Uint64N(5), 700)
		last, _ := l.Replica(1).LastIndex()
		cut := errors.New("cut")
		d.failSync = func(string) error { return cut }
		b := new(Batch)
		entries := []*raftpb.Entry{
			entry(last+1, 1, make([]byte, 5000)), entry(last+2, 1, []byte("end")),
		}
		b.Append(1, entries, nil)
		for i := range b.items[0].entry.Data {
			b.items[0].entry.Data[i] = byte(rng.Uint32())
		}
		if err := l.Append(b); !errors.Is(err, cut) {
			t.Fatal(err)
		}
		l, err := Open("log", small(d.crash(rng)))
		if err != nil {
			t.Fatalf("TORN: %v", err)
		}
		if got, _ := l.Replica(1).LastIndex(); got != last && got != last+2 {
			t.Fatalf("TORN: the log ends at %d, want %d or all of the batch", got, last)
		}
		s, _ := l.Replica(1).LastIndex()
		if _, err := l.Replica(1).Entries(1, s+1, 1<<40); err != nil && s > 0 {
			t.Fatalf("TORN: %v", err)
		}
	}
}

// A damaged entry is never returned, also long after Open.
func TestDamagedEntry(t *testing.T) {
	d := newMemDir()
	l := mustOpen(t, small(d))
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
	run(t, l, 1, 1, 10, 3000)
	sl := l.state.replicas[1].slot(4)
	d.names[l.segments[0].name].data[sl.offset+2000] ^= 1
	if got, err := l.Replica(1).Entries(1, 4, 1<<40); len(got) != 3 || err != nil {
		t.Fatal(len(got), err)
	}
	_, err := l.Replica(1).Entries(1, 10, 1<<40)
	var damage *DamageError
	if !errors.As(err, &damage) || damage.Offset != int64(sl.offset) {
		t.Fatalf("UNNOTICED: %v, want damage at %d", err, sl.offset)
	}
}

// FuzzOpen opens any bytes as the last segment, or as the payload of a complete frame in it.
func FuzzOpen(f *testing.F) {
	d, _ := smallLog(f, rand.New(rand.NewPCG(1, 1)), false)
	name := slices.Max(slices.Collect(maps.Keys(d.names)))
	contents := d.names[name].data
	h, err := decodeHeader(contents)
	if err != nil {
		f.Fatal(err)
	}
	for at := headerBytes; ; {
		fr, ok := readable(contents, h.seed(), at)
		if !ok {
			break
		}
		f.Add(contents[at+frameHead:][:fr.length], true)
		at += fr.span()
	}
	f.Add(contents[headerBytes:headerBytes+5000], false)
	_, _, last := frameOf(d.names[name], int64(len(contents)))
	head, _ := readable(contents, h.seed(), last)
	end := last + head.span()
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if len(b) > minSegmentBytes/2 {
			return
		}
		c, at := d.copy(), headerBytes
		if sealed { // behind the existing content
			b = sealFrame(append(make([]byte, frameHead), b...), h.seed(), head.number+1, end)
			at = end
		}
		copy(c.names[name].data[at:], b)
		l, err := Open("log", small(c))
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		for _, s := range l.Replicas() { // an accepted log can be read, and survives
			if kept := s.Truncated.Index; s.Last > kept {
				if _, err := l.Replica(s.Replica).Entries(kept+1, s.Last+1, 1<<40); err != nil {
					t.Fatal(err)
				}
			}
		}
		again := mustOpen(t, small(c))
		was, is := fmt.Sprint(l.Replicas(), l.Notes()), fmt.Sprint(again.Replicas(), again.Notes())
		if was != is {
			t.Fatalf("%s became %s", was, is)
		}
	})
}

// TestStateIsWhole: a segment whose first frame lacks a replica or a note of the earlier segments is
// damaged: what it lacks would be lost once those segments are deleted. Catches
// BROKEN=log_lacking_state.
func TestStateIsWhole(t *testing.T) {
	for _, lacks := range []string{"", "replica", "note"} {
		d := newMemDir()
		l := mustOpen(t, small(d))
		b := new(Batch)
		b.Begin(1, Position{Index: 10, Term: 5}, nil)
		b.Begin(2, Position{Index: 10, Term: 5}, nil)
		b.Note("n", []byte("v"))
		if err := l.Append(b); err != nil {
			t.Fatal(err)
		}
		replica, note := l.state.replicas[2], l.state.notes["n"]
		switch lacks {
		case "replica":
			delete(l.state.replicas, 2)
		case "note":
			delete(l.state.notes, "n")
		}
		if err := l.begin(0, false); err != nil {
			t.Fatal(err)
		}
		l.state.replicas[2], l.state.notes["n"] = replica, note
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, err := Open("log", small(d))
		if errors.Is(err, ErrDamaged) != (lacks != "") {
			t.Errorf("LACKING: without a %q: %v", lacks, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

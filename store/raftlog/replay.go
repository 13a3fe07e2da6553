package raftlog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// Replay of a log during Open, on the caller's goroutine.

// maxMissing limits the entries of one replica whose segments may be gone; more count as damage.
const maxMissing = 1 << 26

// find opens the segments in the directory and reads their headers. Once it has verified that
// they belong to this log, it removes unfinished files of an earlier process.
func (l *Log) find(names []string) error {
	var segments []*segment
	var spares []string
	unfinished := false
	for _, name := range names {
		switch sequence, ok := parseSegmentName(name); {
		case ok:
			segments = append(segments, &segment{header: header{sequence: sequence}, name: name})
		case strings.HasSuffix(name, spareExt):
			spares = append(spares, name)
		case name == newName:
			unfinished = true
		}
	}
	slices.SortFunc(segments, func(a, b *segment) int {
		return cmp.Compare(a.sequence, b.sequence)
	})
	if err := l.openFiles(segments); err != nil {
		return err
	}
	for i := range l.segments {
		if err := l.readHeader(i); err != nil {
			return err
		}
	}
	if len(l.segments) == 0 && !l.opts.Create {
		return fmt.Errorf("%w: %s", ErrNoLog, l.dir)
	}
	if unfinished {
		if err := l.fs.remove(newName); err != nil {
			return fmt.Errorf("raftlog: remove an unfinished segment: %w", err)
		}
	}
	return l.checkSpares(spares)
}

func (l *Log) openFiles(segments []*segment) error {
	for _, s := range segments {
		var err error
		if s.file, err = l.fs.open(s.name); err != nil {
			return fmt.Errorf("raftlog: open segment: %w", err)
		}
		l.segments = append(l.segments, s)
		if s.bytes, err = s.file.size(); err != nil {
			return fmt.Errorf("raftlog: open segment: %w", err)
		}
	}
	return nil
}

// checkSpares keeps the spares of the right size up to Options.Spares, and removes the others.
func (l *Log) checkSpares(found []string) error {
	for _, name := range found {
		f, err := l.fs.open(name)
		if err != nil {
			return fmt.Errorf("raftlog: open spare: %w", err)
		}
		size, err := f.size()
		if err := errors.Join(err, f.close()); err != nil {
			return fmt.Errorf("raftlog: open spare: %w", err)
		}
		if size == l.opts.SegmentBytes && len(l.spares) < l.opts.Spares {
			l.setSpares(append(l.spares, name))
		} else if err := l.fs.remove(name); err != nil {
			return fmt.Errorf("raftlog: remove spare: %w", err)
		}
	}
	return nil
}

// damage returns a *DamageError for an offset in a segment.
func (l *Log) damage(s *segment, offset int64, format string, args ...any) error {
	return &DamageError{
		Segment: filepath.Join(l.dir, s.name), Offset: offset, What: fmt.Sprintf(format, args...),
	}
}

// replay reads all segments, one after the other.
func (l *Log) replay() error {
	contents := make([]byte, 0, l.opts.SegmentBytes)
	// The last frame that Reached counts may be in a freed segment.
	l.reached.Store(framePosition(l.segments[0].sequence, 0))
	for i, s := range l.segments {
		contents = slices.Grow(contents[:0], int(s.bytes))[:s.bytes]
		if _, err := s.file.ReadAt(contents, 0); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("raftlog: read segment %s: %w", s.name, err)
		}
		var next *segment
		if i+1 < len(l.segments) {
			next = l.segments[i+1]
		}
		if err := l.readFrames(s, next, contents); err != nil {
			return err
		}
	}
	last := l.segments[len(l.segments)-1]
	l.next = last.sequence + 1
	if err := l.checkWhole(); err != nil {
		return err
	}
	if err := l.seal(last); err != nil {
		return fmt.Errorf("raftlog: seal segment %s: %w", last.name, err)
	}
	for _, s := range l.segments {
		s.filled = s.bytes
	}
	return nil
}

// seal ends the segment that the last process wrote to. It makes the contents durable before the
// next segment records this end, because those of a killed process may only be in the page cache.
// Data after the end was never acknowledged; seal frees its space.
func (l *Log) seal(s *segment) error {
	if s.end < s.bytes {
		if err := s.file.truncate(s.end); err != nil {
			return err
		}
		s.bytes = s.end
	}
	return l.sync(s)
}

// readHeader checks that the segment's header matches its name and that it follows the previous
// segment.
func (l *Log) readHeader(i int) error {
	s, b := l.segments[i], make([]byte, headerBytes)
	if _, err := s.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("raftlog: read segment %s: %w", s.name, err)
	}
	h, err := decodeHeader(b)
	switch {
	case errors.Is(err, ErrForeign):
		return fmt.Errorf("%w: %s", err, filepath.Join(l.dir, s.name))
	case err != nil:
		return l.damage(s, 0, "%v", err)
	case h.sequence != s.sequence:
		return l.damage(s, 0, "its header is that of segment %016x", h.sequence)
	case i > 0 && h.id != l.id, l.opts.ID != logID{} && h.id != l.opts.ID:
		return fmt.Errorf("%w: %s", ErrForeign, filepath.Join(l.dir, s.name))
	case i > 0 && l.segments[i-1].sequence+1 != h.sequence:
		return l.damage(s, 0, "the previous segment, %s, is missing", segmentName(h.sequence-1))
	}
	l.id, s.header = h.id, h
	return nil
}

// readFrames applies the segment's frames. The header of the next segment contains the end of
// this one, up to which everything was synced. In the last segment every frame that another one
// follows was synced; only the last frame may be incomplete.
func (l *Log) readFrames(s, next *segment, b []byte) error {
	seed, at, end := s.seed(), headerBytes, int64(len(b))
	if next != nil {
		end = next.before
	}
	for at < end {
		f, ok := readable(b, seed, at)
		ok = ok && f.number == s.frames
		if !ok && (next != nil || s.frames == 0) {
			return l.damage(s, at, "frame %d is damaged", s.frames)
		}
		if !ok {
			if behind, found := findFrame(b, seed, s.frames, at); found {
				return l.damage(s, at, "frame %d is damaged: another one follows at %d",
					s.frames, behind)
			}
			break
		}
		if err := l.readFrame(s, b[at+frameHead:][:f.length], at+frameHead); err != nil {
			return err
		}
		at += f.span()
		s.frames++
	}
	switch s.end = at; {
	case s.frames == 0:
		return l.damage(s, at, "the segment has no frame")
	case next != nil && at > end:
		return l.damage(s, at, "frame %d ends at %d, beyond the segment's end at %d", s.frames-1, at, end)
	}
	return nil
}

// readable returns the frame at an offset, if it is complete and undamaged.
func readable(b []byte, seed uint32, at int64) (f frame, ok bool) {
	if at > int64(len(b)) {
		return f, false
	}
	if f, ok = decodeFrame(b[at:], seed, at); !ok || f.span() > int64(len(b))-at {
		return f, false
	}
	return f, f.matches(b[at+frameHead:][:f.length], seed)
}

// findFrame searches for a frame with a valid head after at, where no frame could be read. If it
// finds one, the data at `at` was synced, and is damaged.
func findFrame(b []byte, seed, number uint32, at int64) (offset int64, found bool) {
	for o := at + alignment; o+frameHead <= int64(len(b)); o += alignment {
		length, n := binary.LittleEndian.Uint32(b[o:]), binary.LittleEndian.Uint32(b[o+4:])
		if n < number || int64(n-number) > (o-at)/frameHead ||
			int64(length) > int64(len(b))-o-frameHead {
			continue
		}
		if _, ok := decodeFrame(b[o:], seed, o); ok {
			return o, true
		}
	}
	return 0, false
}

// readFrame applies the payload at an offset of the segment.
func (l *Log) readFrame(s *segment, b []byte, offset int64) error {
	items := 0
	for at := 0; at < len(b); items++ {
		it, n, err := decodeItem(b[at:])
		if err != nil {
			return l.damage(s, offset+int64(at), "%v", err)
		}
		it.offset = uint32(at)
		at += n
		if s.frames > 0 && it.maySend() {
			l.reached.Store(framePosition(s.sequence, s.frames))
		}
		switch {
		case s.frames == 0:
			err = l.readState(&it, s)
		case it.entry != nil:
			err = l.state.apply(&it, s, offset, it.cloneEntry())
		default:
			err = l.state.apply(&it, s, offset, nil)
		}
		if err != nil {
			return l.damage(s, offset+int64(it.offset), "%v", err)
		}
	}
	if known := len(l.state.replicas) + len(l.state.notes); s.frames == 0 && items != known {
		return l.damage(s, offset, "it has %d heads and notes, the earlier segments have %d", items, known)
	}
	return nil
}

var (
	errState = errors.New("it differs from that of the earlier segments")
	errKind  = errors.New("an item of a kind that a segment's first frame must not contain")
)

// readState loads the state of a replica, or a note, from the first frame of the oldest segment.
// In every later segment it compares them with the state so far.
func (l *Log) readState(it *item, s *segment) error {
	first := s == l.segments[0]
	switch {
	case it.kind == itemNote:
		if !first && string(l.state.notes[it.key]) != string(it.note) {
			return fmt.Errorf("compare note %q: %w", it.key, errState)
		}
		return l.state.apply(it, s, 0, nil)
	case it.kind != itemState:
		return errKind
	}
	r := l.state.replicas[it.replica]
	if !first {
		if r == nil || r.head != it.head {
			return fmt.Errorf("compare the head of replica %d: %w", it.replica, errState)
		}
		return nil
	}
	r = &replica{head: it.head}
	begin := r.truncated.Index
	if r.checkpoint < begin || r.last < r.checkpoint || r.last-begin > maxMissing {
		return fmt.Errorf("replica %d: a log of (%d, %d] with a checkpoint at %d",
			it.replica, begin, r.last, r.checkpoint)
	}
	r.slots = make([]slot, r.last-begin)
	l.state.replicas[it.replica] = r
	return nil
}

// checkWhole checks that every live entry was found in a segment.
func (l *Log) checkWhole() error {
	for id, r := range l.state.replicas {
		for i := range r.slots {
			if r.slots[i].segment == nil {
				return l.damage(l.segments[0], 0,
					"entry %d of replica %d is in no segment: an earlier segment is missing",
					r.truncated.Index+1+uint64(i), id)
			}
		}
	}
	return nil
}

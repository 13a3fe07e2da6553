package raftlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Files of segments. The name of a segment is its sequence number. A spare is the file of a freed
// segment, kept for reuse. A new segment is named newName until its header and first frame are
// durable. Everything here runs under Log.writing, or during Open.
const (
	segmentExt = ".log"
	spareExt   = ".free"
	newName    = "next.new"
)

// aheadBytes is the distance by which a new segment is filled with zeros ahead of the writes.
// Syncing an allocated range that was never written would also make the file system write its
// journal.
const aheadBytes = 512 << 10

var zeros [aheadBytes]byte // never changed

// segment is one file of the log. Append, Rewrite, Open and Close write only to the last one.
type segment struct {
	header
	name   string
	file   file
	bytes  int64 // the file's size
	end    int64 // offset of the next frame
	filled int64 // the file has been written up to this offset, with data or zeros
	frames uint32

	live      int   // number of live entries; guarded by Log.mu
	liveBytes int64 // bytes of the live entries' items; guarded by Log.mu
}

func segmentName(sequence uint64) string { return fmt.Sprintf("%016x%s", sequence, segmentExt) }

// parseSegmentName is the inverse of segmentName.
func parseSegmentName(name string) (sequence uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentExt)
	if !ok {
		return 0, false
	}
	sequence, err := strconv.ParseUint(digits, 16, 64)
	return sequence, err == nil && segmentName(sequence) == name
}

// IsFile reports whether a file of this name in a log's directory is the log's.
func IsFile(name string) bool {
	_, segment := parseSegmentName(name)
	spare, isSpare := strings.CutSuffix(name, spareExt)
	if isSpare {
		_, isSpare = parseSegmentName(spare + segmentExt)
	}
	return segment || isSpare || name == newName
}

// wrapFull wraps an error of a full disk in ErrDiskFull, and returns any other unchanged.
func wrapFull(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// newFile returns a file for a new segment: a spare or a new file. It returns ErrDiskFull, with
// nothing changed, if the disk is full, or if ask is set and Options.Room refuses.
func (l *Log) newFile(size int64, ask bool) (f file, bytes, filled int64, err error) {
	if n := len(l.spares); n > 0 && size == l.opts.SegmentBytes {
		f, err := l.openSpare(l.spares[n-1])
		if err != nil {
			return nil, 0, 0, err
		}
		l.setSpares(l.spares[:n-1])
		return f, size, size, nil
	}
	if ask && l.opts.Room != nil {
		if err := l.opts.Room(size); err != nil {
			return nil, 0, 0, err
		}
	}
	if f, err = l.fs.create(newName); err != nil {
		return nil, 0, 0, wrapFull(err)
	}
	if err := f.reserve(size); err != nil {
		return nil, 0, 0, wrapFull(errors.Join(err, f.close(), l.fs.remove(newName)))
	}
	return f, size, 0, nil
}

func (l *Log) openSpare(name string) (file, error) {
	f, err := l.fs.open(name)
	if err != nil {
		return nil, err
	}
	if err := l.fs.rename(name, newName); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// begin creates the next segment, whose first frame contains the state, and directs appends to it.
// The segment has space for a frame of room bytes. If small is set and the disk is full, or
// Options.Room refuses, it has little more than that. After an error other than ErrDiskFull the
// segment may or may not exist.
func (l *Log) begin(room int64, small bool) error {
	h := header{id: l.id, sequence: l.next}
	if n := len(l.segments); n > 0 {
		h.before = l.segments[n-1].end
	}
	frame := make([]byte, frameHead)
	items := l.state.items()
	for i := range items {
		frame = items[i].append(frame)
	}
	frame = sealFrame(frame, h.seed(), 0, headerBytes)
	end := headerBytes + int64(len(frame))
	size := max(l.opts.SegmentBytes, align(end+room+reserveBytes))
	f, bytes, filled, err := l.newFile(size, true)
	if errors.Is(err, ErrDiskFull) && small {
		f, bytes, filled, err = l.newFile(align(end+room+smallBytes), false)
	}
	if err != nil {
		return fmt.Errorf("create a segment: %w", err)
	}
	s := &segment{header: h, name: segmentName(h.sequence), file: f, bytes: bytes, filled: filled}
	s.end, s.frames = end, 1
	err = s.write(append(h.encode(), frame...), 0)
	if err == nil {
		err = l.sync(s)
	}
	if err == nil {
		err = l.fs.rename(newName, s.name)
	}
	if err == nil {
		err = l.fs.sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create segment %s: %w", s.name, err), f.close())
	}
	l.mu.Lock()
	l.segments = append(l.segments, s)
	l.next++
	l.mu.Unlock()
	return nil
}

// write writes at an offset that this use of the file has not written. Unless filled covers the
// range, it first writes zeros from filled to aheadBytes after the range, at most to the file's end.
func (s *segment) write(b []byte, at int64) error {
	if to := at + int64(len(b)); to > s.filled {
		for ahead := min(to+aheadBytes, s.bytes); s.filled < ahead; {
			n, err := s.file.WriteAt(zeros[:min(ahead-s.filled, aheadBytes)], s.filled)
			if s.filled += int64(n); err != nil {
				return err
			}
		}
	}
	_, err := s.file.WriteAt(b, at)
	return err
}

// free retires the oldest segments without live entries, each durably before the next, so that
// the remaining ones are always contiguous.
func (l *Log) free() error {
	for len(l.segments) > 1 && l.segments[0].live == 0 {
		s := l.segments[0]
		l.mu.Lock()
		l.segments = l.segments[1:]
		l.mu.Unlock()
		if err := l.retire(s); err != nil {
			return fmt.Errorf("free segment %s: %w", s.name, err)
		}
	}
	return nil
}

func (l *Log) setSpares(names []string) {
	l.spares = names
	l.spareCount.Store(int64(len(names)))
}

// retire makes the segment's file a spare or removes it. It waits for readers of the file.
func (l *Log) retire(s *segment) error {
	l.reading.Lock()
	defer l.reading.Unlock()
	if err := s.file.close(); err != nil {
		return err
	}
	if s.bytes != l.opts.SegmentBytes || s.filled < s.bytes || len(l.spares) >= l.opts.Spares {
		if err := l.fs.remove(s.name); err != nil {
			return err
		}
		return l.fs.sync()
	}
	spare := strings.TrimSuffix(s.name, segmentExt) + spareExt
	if err := l.fs.rename(s.name, spare); err != nil {
		return err
	}
	l.setSpares(append(l.spares, spare))
	return l.fs.sync()
}

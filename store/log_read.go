package store

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// entryOverheadPB bounds what protobuf adds to an entry's data, for the sizes that raft asks for.
const entryOverheadPB = 32

// OpenLog opens the Raft log of a replica. It returns ErrNoLog if there is none, and ErrCorrupt, wrapped, if the log has
// gaps or commits more than it holds.
func (s *Store) OpenLog(tablet uint64) (*Log, error) {
	snap := s.log.snap()
	defer snap.Close()
	l := &Log{d: s.log, tablet: tablet, conf: new(raftpb.ConfState), hard: new(raftpb.HardState)}
	if err := l.loadHead(snap); err != nil {
		return nil, err
	}
	if err := l.loadBounds(snap); err != nil {
		return nil, err
	}
	l.raiseHead()
	if l.hard.GetCommit() > l.last {
		return nil, fmt.Errorf("%w: raft log of tablet %d commits %d but ends at %d",
			ErrCorrupt, tablet, l.hard.GetCommit(), l.last)
	}
	return l, nil
}

// loadHead reads the truncated position and the HardState.
func (l *Log) loadHead(snap *Snap) error {
	ok, err := snap.read(appendLogKey(nil, l.tablet, logTruncatedPart), func(b []byte) error {
		r := reader{b: b}
		l.truncated = position{index: r.uvarint(), term: r.uvarint()}
		return r.done("log position", false)
	})
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: tablet %d", ErrNoLog, l.tablet)
	}
	_, err = snap.read(appendLogKey(nil, l.tablet, logHardStatePart), func(b []byte) error {
		r := reader{b: b}
		term, vote, commit := r.uvarint(), r.uvarint(), r.uvarint()
		l.hard = &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
		return r.done("hard state", false)
	})
	return err
}

// raiseHead brings the HardState up to where the log begins: InitialLog does not touch it. A vote of an older term is over.
func (l *Log) raiseHead() {
	term, vote, commit := l.hard.GetTerm(), l.hard.GetVote(), max(l.hard.GetCommit(), l.truncated.index)
	if term < l.truncated.term {
		term, vote = l.truncated.term, 0
	}
	l.hard = &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// loadBounds finds the last entry and checks that there is no gap: by keys alone, a log is kept short.
func (l *Log) loadBounds(snap *Snap) error {
	l.last = l.truncated.index
	prefix := appendLogKey(nil, l.tablet, logEntryPart)
	var fault error
	snap.walk(walkOptions{prefix: prefix, keysOnly: true}, func(key, _ []byte, err error) bool {
		if err != nil {
			fault = err
			return false
		}
		if index := binary.BigEndian.Uint64(key[len(prefix):]); index != l.last+1 {
			fault = fmt.Errorf("%w: raft log of tablet %d has %d after %d", ErrCorrupt, l.tablet, index, l.last)
			return false
		}
		l.last++
		return true
	})
	l.written = l.last
	return fault
}

// InitialState implements raft.Storage.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.hard, l.conf, nil
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) { return l.truncated.index + 1, nil }

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) { return l.last, nil }

// Snapshot implements raft.Storage with what SetSnapshot has set. If that is nothing, raft asks again later.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	if l.snapshot == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return l.snapshot()
}

// Term implements raft.Storage. Near the end of the log it does not touch Badger.
func (l *Log) Term(i uint64) (uint64, error) {
	switch {
	case i == l.truncated.index:
		return l.truncated.term, nil
	case i < l.truncated.index:
		return 0, raft.ErrCompacted
	case i > l.last:
		return 0, raft.ErrUnavailable
	}
	if e := l.cache.at(i); e != nil {
		return e.GetTerm(), nil
	}
	snap := l.d.snap()
	defer snap.Close()
	var term uint64
	ok, err := snap.read(appendEntryKey(nil, l.tablet, i), func(b []byte) (err error) {
		term, _, _, err = decodeEntryHeader(b)
		return err
	})
	if err == nil && !ok {
		err = fmt.Errorf("%w: raft log of tablet %d lacks %d", ErrCorrupt, l.tablet, i)
	}
	return term, err
}

// Entries implements raft.Storage. Near the end of the log it does not touch Badger. The slice is the caller's.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo <= l.truncated.index {
		return nil, raft.ErrCompacted
	}
	if hi > l.last+1 {
		return nil, raft.ErrUnavailable
	}
	page := entryPage{limit: maxSize}
	if cut := min(hi, l.cache.firstOr(hi)); lo < cut {
		full, err := l.readEntries(&page, lo, cut)
		if full || err != nil {
			return page.entries, err
		}
		lo = cut
	}
	for ; lo < hi; lo++ {
		if !page.add(l.cache.at(lo)) {
			break
		}
	}
	return page.entries, nil
}

// entryPage gathers entries up to a limit in bytes, but at least one.
type entryPage struct {
	entries []*raftpb.Entry
	size    uint64
	limit   uint64
}

func (p *entryPage) add(e *raftpb.Entry) bool {
	p.size += uint64(len(e.Data)) + entryOverheadPB
	if len(p.entries) > 0 && p.size > p.limit {
		return false
	}
	p.entries = append(p.entries, e)
	return true
}

// readEntries reads [lo, hi) from Badger into the page until it is full.
func (l *Log) readEntries(page *entryPage, lo, hi uint64) (full bool, err error) {
	snap := l.d.snap()
	defer snap.Close()
	next := lo
	o := walkOptions{
		prefix: appendLogKey(nil, l.tablet, logEntryPart),
		seek:   appendEntryKey(nil, l.tablet, lo),
		end:    appendEntryKey(nil, l.tablet, hi),
	}
	snap.walk(o, func(key, value []byte, fault error) bool {
		if fault != nil {
			err = fault
			return false
		}
		index := binary.BigEndian.Uint64(key[len(o.prefix):])
		term, typ, data, fault := decodeEntryHeader(value)
		if fault != nil || index != next {
			err = fmt.Errorf("%w: raft log of tablet %d, entry %d where %d belongs: %w", ErrCorrupt, l.tablet, index, next, fault)
			return false
		}
		next++
		full = !page.add(&raftpb.Entry{Term: &term, Index: &index, Type: &typ, Data: clone(tail(data))})
		return !full
	})
	if err == nil && !full && next != hi {
		err = fmt.Errorf("%w: raft log of tablet %d lacks %d", ErrCorrupt, l.tablet, next)
	}
	return full, err
}

package raftlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"
)

// memDir is a directory in memory that tracks which of its data is durable. It belongs to one
// goroutine.
type memDir struct {
	names   map[string]*memFile // as visible to the process
	durable map[string]*memFile
	pending []func(names map[string]*memFile) // changes of names since the last sync, in order

	cutAfter  int   // number of operations until the power is off; < 0: it stays on
	room      int64 // maximum size of all files together; 0: no limit
	failWrite func(name string, n int) (int, error)
	failSync  func(name string) error
}

// memBlock is the unit that a device writes atomically.
const memBlock = 512

type memFile struct {
	dir     *memDir
	name    string
	data    []byte
	durable []byte
	dirty   map[int]bool // blocks of data that may differ from durable
}

var errCut = errors.New("the power is off")

func newMemDir() *memDir {
	return &memDir{names: map[string]*memFile{}, durable: map[string]*memFile{}, cutAfter: -1}
}

// cut counts an operation and reports whether the power is off.
func (d *memDir) cut() bool {
	if d.cutAfter > 0 {
		d.cutAfter--
	}
	return d.cutAfter == 0
}

// crash returns the directory after a power loss: any of the unsynced blocks and a prefix of the
// unsynced changes of names have survived.
func (d *memDir) crash(rng *rand.Rand) *memDir {
	for _, change := range d.pending[:rng.IntN(len(d.pending)+1)] {
		change(d.durable)
	}
	after := newMemDir()
	after.room = d.room
	for name, f := range d.durable {
		b := slices.Clone(f.durable)
		if n := len(f.data); n != len(b) && rng.IntN(2) == 0 {
			b = append(b[:min(n, len(b))], make([]byte, max(0, n-len(b)))...)
		}
		survive := rng.IntN(3)
		for _, block := range slices.Sorted(maps.Keys(f.dirty)) {
			from, to := block*memBlock, min((block+1)*memBlock, len(f.data), len(b))
			if from < to && rng.IntN(2) < survive {
				copy(b[from:to], f.data[from:to])
			}
		}
		g := &memFile{
			dir: after, name: name, data: b, durable: slices.Clone(b), dirty: map[int]bool{},
		}
		after.names[name], after.durable[name] = g, g
	}
	return after
}

// kill returns the directory after the process was killed: everything written is present.
func (d *memDir) kill() *memDir { d.cutAfter = -1; return d }

func (d *memDir) list() ([]string, error) {
	if d.cut() {
		return nil, errCut
	}
	return slices.Sorted(maps.Keys(d.names)), nil
}

func (d *memDir) change(f func(names map[string]*memFile)) {
	f(d.names)
	d.pending = append(d.pending, f)
}

func (d *memDir) create(name string) (file, error) {
	if d.cut() {
		return nil, errCut
	}
	if d.names[name] != nil {
		return nil, fs.ErrExist
	}
	f := &memFile{dir: d, name: name, dirty: map[int]bool{}}
	d.change(func(names map[string]*memFile) { names[name] = f })
	return f, nil
}

func (d *memDir) open(name string) (file, error) {
	if d.cut() {
		return nil, errCut
	}
	if d.names[name] == nil {
		return nil, fs.ErrNotExist
	}
	return d.names[name], nil
}

func (d *memDir) rename(from, to string) error {
	if d.cut() {
		return errCut
	}
	d.names[from].name = to
	d.change(func(names map[string]*memFile) {
		names[to] = names[from]
		delete(names, from)
	})
	return nil
}

func (d *memDir) remove(name string) error {
	if d.cut() {
		return errCut
	}
	d.change(func(names map[string]*memFile) { delete(names, name) })
	return nil
}

func (d *memDir) sync() error {
	if d.cut() {
		return errCut
	}
	for _, change := range d.pending {
		change(d.durable)
	}
	d.pending = nil
	return nil
}

func (d *memDir) used() (n int64) {
	for _, f := range d.names {
		n += int64(len(f.data))
	}
	return n
}

func (f *memFile) ReadAt(b []byte, at int64) (int, error) {
	if at >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := len(b), error(nil)
	if f.dir.cut() {
		err = errCut
	} else if f.dir.failWrite != nil {
		n, err = f.dir.failWrite(f.name, n)
	}
	if at+int64(len(b)) > int64(len(f.data)) {
		return 0, fmt.Errorf("write at %d of %d bytes into a file of %d", at, len(b), len(f.data))
	}
	copy(f.data[at:], b[:n])
	for block := int(at / memBlock); n > 0 && int64(block)*memBlock < at+int64(n); block++ {
		f.dirty[block] = true
	}
	return n, err
}

func (f *memFile) close() error         { return nil }
func (f *memFile) size() (int64, error) { return int64(len(f.data)), nil }

func (f *memFile) reserve(size int64) error {
	if f.dir.cut() {
		return errCut
	}
	if f.dir.room > 0 && f.dir.used()+size > f.dir.room {
		return unix.ENOSPC
	}
	f.data = append(f.data, make([]byte, size-int64(len(f.data)))...)
	return nil
}

func (f *memFile) truncate(size int64) error {
	if f.dir.cut() {
		return errCut
	}
	f.data = f.data[:size]
	return nil
}

func (f *memFile) sync() error {
	if f.dir.cut() {
		return errCut
	}
	if f.dir.failSync != nil {
		if err := f.dir.failSync(f.name); err != nil {
			return err
		}
	}
	f.durable = append(f.durable[:min(len(f.durable), len(f.data))],
		make([]byte, max(0, len(f.data)-len(f.durable)))...)
	for block := range f.dirty {
		from, to := block*memBlock, min((block+1)*memBlock, len(f.data))
		if from < to {
			copy(f.durable[from:to], f.data[from:to])
		}
	}
	clear(f.dirty)
	return nil
}

// copy returns a copy of the present directory.
func (d *memDir) copy() *memDir {
	c := newMemDir()
	c.room = d.room
	for name, f := range d.names {
		c.names[name] = &memFile{
			dir: c, name: name, dirty: map[int]bool{},
			data: slices.Clone(f.data), durable: slices.Clone(f.data),
		}
		c.durable[name] = c.names[name]
	}
	return c
}

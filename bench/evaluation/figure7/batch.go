package figure7

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// The batch job: it clusters a repository from scratch by sorting, on all cores, with its input, its
// intermediate results and its output in files. A document's cluster is decided by the first of its
// keys that an earlier document has, too: it is the cluster of the earliest document with that key.
// The observer assigns the same.

// batchJob is a repository of documents in files, one for each core.
type batchJob struct {
	dir   string
	parts int // files of the repository, and partitions of each sort
	each  int // documents in a file
	n     int
}

// newBatchJob writes the repository and drops it from the page cache.
func newBatchJob(dir string, keys [][documentKeys]uint32) (*batchJob, error) {
	b := &batchJob{dir: dir, parts: runtime.NumCPU(), n: len(keys)}
	b.each = (b.n + b.parts - 1) / b.parts
	return b, b.concurrently(b.parts, func(part int) error {
		f, err := os.Create(b.file("documents", part))
		if err != nil {
			return err
		}
		out := bufio.NewWriterSize(f, 1<<20)
		record := make([]byte, recordBytes)
		for doc := part * b.each; doc < min((part+1)*b.each, b.n); doc++ {
			for i, k := range keys[doc] {
				binary.BigEndian.PutUint32(record[4*i:], k)
			}
			if _, err := out.Write(record); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		err = cmp.Or(out.Flush(), f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		return errors.Join(err, f.Close())
	})
}

const recordBytes = 4*documentKeys + documentBytes

// run runs the job and returns the cluster of each document.
func (b *batchJob) run() ([]uint32, error) {
	if err := b.concurrently(b.parts, b.mapPart); err != nil {
		return nil, err
	}
	if err := b.concurrently(documentKeys*b.parts, func(i int) error { return b.firstHolders(i/b.parts, i%b.parts) }); err != nil {
		return nil, err
	}
	first := make([][documentKeys]uint32, b.n)
	if err := b.concurrently(b.parts, func(part int) error { return b.join(part, first) }); err != nil {
		return nil, err
	}
	clusters := make([]uint32, b.n)
	for doc := range first {
		clusters[doc] = uint32(doc)
		for _, holder := range first[doc] {
			if int(holder) < doc {
				clusters[doc] = clusters[holder]
				break
			}
		}
	}
	return clusters, b.write(b.file("clusters", 0), func(emit func(uint64) error) error {
		for doc, c := range clusters {
			if err := emit(uint64(doc)<<32 | uint64(c)); err != nil {
				return err
			}
		}
		return nil
	})
}

// mapPart reads the documents of a part and writes their pairs of key and document, into a file for
// each kind of key and partition of the keys.
func (b *batchJob) mapPart(part int) (err error) {
	f, err := os.Open(b.file("documents", part))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	outs, files := make([]*bufio.Writer, documentKeys*b.parts), make([]*os.File, documentKeys*b.parts)
	defer func() {
		for _, out := range files {
			err = errors.Join(err, out.Close())
		}
	}()
	for i := range outs {
		if files[i], err = os.Create(b.file(fmt.Sprintf("pairs-%d-%d", i/b.parts, i%b.parts), part)); err != nil {
			files = files[:i]
			return err
		}
		outs[i] = bufio.NewWriterSize(files[i], 1<<18)
	}
	in, record := bufio.NewReaderSize(f, 1<<20), make([]byte, recordBytes)
	for doc := part * b.each; ; doc++ {
		if _, err := io.ReadFull(in, record); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		for i := range documentKeys {
			k := binary.BigEndian.Uint32(record[4*i:])
			pair := binary.BigEndian.AppendUint64(nil, uint64(k)<<32|uint64(doc))
			if _, err := outs[i*b.parts+int(k)%b.parts].Write(pair); err != nil {
				return err
			}
		}
	}
	for _, out := range outs {
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// firstHolders sorts the pairs of one kind of key in one partition, and writes each document with
// the first one that has its key.
func (b *batchJob) firstHolders(kind, of int) error {
	var pairs []uint64
	for part := range b.parts {
		var err error
		if pairs, err = read(b.file(fmt.Sprintf("pairs-%d-%d", kind, of), part), pairs); err != nil {
			return err
		}
	}
	slices.Sort(pairs)
	return b.write(b.file(fmt.Sprintf("first-%d", kind), of), func(emit func(uint64) error) error {
		var holder uint64
		for i, p := range pairs {
			if i == 0 || p>>32 != pairs[i-1]>>32 {
				holder = p & (1<<32 - 1)
			}
			if err := emit(p<<32 | holder); err != nil {
				return err
			}
		}
		return nil
	})
}

// join reads one partition of what firstHolders has written, of all kinds of keys, into first.
func (b *batchJob) join(of int, first [][documentKeys]uint32) error {
	for kind := range documentKeys {
		pairs, err := read(b.file(fmt.Sprintf("first-%d", kind), of), nil)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			first[p>>32][kind] = uint32(p) // each document has one key of a kind
		}
	}
	return nil
}

// write writes numbers to a file.
func (b *batchJob) write(name string, each func(emit func(uint64) error) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	err = each(func(n uint64) error {
		_, err := out.Write(binary.BigEndian.AppendUint64(out.AvailableBuffer(), n))
		return err
	})
	return errors.Join(err, out.Flush(), f.Close())
}

// read appends the numbers in a file.
func read(name string, to []uint64) ([]uint64, error) {
	text, err := os.ReadFile(name)
	for ; len(text) >= 8; text = text[8:] {
		to = append(to, binary.BigEndian.Uint64(text))
	}
	return to, err
}

func (b *batchJob) file(name string, part int) string {
	return filepath.Join(b.dir, fmt.Sprintf("%s.%d", name, part))
}

func (b *batchJob) concurrently(n int, fn func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	for i := range n {
		g.Go(func() error { return fn(i) })
	}
	return g.Wait()
}

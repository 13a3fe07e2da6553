package store

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/percolator-go/percolator/internal/broken"
)

// A journal is the durable copy of one of Badger's log files (docs/adr/0021-a-journal-beside-badgers-log.md). Badger writes its log
// through a mapping, of which every sync makes the processors forget each page, and the next write finds it anew; the journal
// is written as files are, over the place of an older one, and it alone is synced. What it holds is put back into the log file
// before Badger opens it: after a power loss the log may lack any of its pages.
//
// It begins with a head and goes on with records, one after the other:
//
//	head    magic "PRCJRNL1", nonce (8 bytes), number of the log file (8), the log file's own head (20), CRC
//	record  place in the log file (8), length (4), CRC, the bytes
//
// Numbers are big-endian, CRCs are Castagnoli's of all that is before them and, of a record, its bytes; a record's begins with
// the nonce, so that what is left behind the end of an older journal in the same file is none of this one's.
type journal struct {
	file   *os.File
	log    int    // number of the log file
	nonce  uint32 // CRC of the nonce: what records' CRCs begin with
	copied int64  // the log file up to here is in the journal
	end    int64  // place of the next record
	placed int64  // the file has its place on the disk up to here, and its size
	buf    []byte // of one record, reused
}

const (
	journalExt   = ".journal"
	journalMagic = "PRCJRNL1"
	logHeadBytes = 20 // of Badger's log files: the number of a key, and twelve random bytes
	journalHead  = len(journalMagic) + 8 + 8 + logHeadBytes + 4
	recordHead   = 8 + 4 + 4
	// maxRecord bounds a record's bytes.
	maxRecord = 256 << 10
	// aheadBytes is how much of a new journal is given its place on the disk at once, as zeros: a sync of bytes that have none yet
	// makes the file system write its own journal as well, and wait for that (docs/performance.md).
	aheadBytes = 512 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begin makes the file the journal of a log file that has just been made and is itself durable, size and all.
func (j *journal) begin(log int, logFile io.ReaderAt) error {
	head := make([]byte, journalHead)
	n := copy(head, journalMagic)
	if _, err := rand.Read(head[n : n+8]); err != nil {
		return fmt.Errorf("store: begin a journal: %w", err)
	}
	binary.BigEndian.PutUint64(head[n+8:], uint64(log))
	if _, err := logFile.ReadAt(head[n+16:n+16+logHeadBytes], 0); err != nil {
		return fmt.Errorf("store: begin a journal: %w", err)
	}
	sealHead(head)
	if _, err := j.file.WriteAt(head, 0); err != nil {
		return fmt.Errorf("store: begin a journal: %w", err)
	}
	j.log, j.nonce, j.copied, j.end = log, nonceOf(head), logHeadBytes, int64(journalHead)
	j.placed = max(j.placed, j.end)
	return nil
}

func sealHead(head []byte) {
	at := journalHead - 4
	binary.BigEndian.PutUint32(head[at:], crc32.Checksum(head[:at], castagnoli))
}

func nonceOf(head []byte) uint32 {
	n := len(journalMagic)
	return crc32.Checksum(head[n:n+8], castagnoli)
}

// copy writes what the log file has gained, up to an end of a Txn. It is durable with the next sync of the file.
func (j *journal) copy(logFile io.ReaderAt, to int64) error {
	if j.buf == nil {
		j.buf = make([]byte, recordHead+maxRecord)
	}
	for j.copied < to {
		n := min(to-j.copied, maxRecord)
		record := j.buf[:recordHead+n]
		if _, err := logFile.ReadAt(record[recordHead:], j.copied); err != nil {
			return fmt.Errorf("store: read log file %d: %w", j.log, err)
		}
		binary.BigEndian.PutUint64(record, uint64(j.copied))
		binary.BigEndian.PutUint32(record[8:], uint32(n))
		binary.BigEndian.PutUint32(record[12:], recordSum(j.nonce, record))
		if err := j.place(j.end + int64(len(record))); err != nil {
			return err
		}
		if _, err := j.file.WriteAt(record, j.end); err != nil {
			return fmt.Errorf("store: write journal: %w", err)
		}
		j.copied += n
		j.end += int64(len(record))
	}
	return nil
}

// recordSum is a record's CRC: of all but itself.
func recordSum(nonce uint32, record []byte) uint32 {
	return crc32.Update(crc32.Update(nonce, castagnoli, record[:12]), castagnoli, record[recordHead:])
}

// place writes zeros ahead of what has never been written.
func (j *journal) place(to int64) error {
	if to <= j.placed {
		return nil
	}
	ahead := to + aheadBytes - j.placed
	if _, err := j.file.WriteAt(make([]byte, ahead), j.placed); err != nil {
		return fmt.Errorf("store: write journal: %w", err)
	}
	j.placed += ahead
	return nil
}

// shrink cuts off what is behind the end: of an older journal, or zeros.
func (j *journal) shrink() error {
	if err := j.file.Truncate(j.end); err != nil {
		return fmt.Errorf("store: shrink journal: %w", err)
	}
	j.placed = j.end
	return nil
}

// restoreJournals puts back into the log files of a directory what their journals hold; they are to be synced before
// removeJournals. Errors: those of the file system; what is not whole is left out, as nobody was told that it is durable.
func restoreJournals(dir string) error {
	names, err := filesOf(dir, journalExt)
	if err != nil || broken.UnrestoredJournals {
		return err
	}
	for _, name := range names {
		if err := restoreJournal(dir, name); err != nil {
			return fmt.Errorf("store: restore from %s: %w", filepath.Base(name), err)
		}
	}
	return nil
}

func restoreJournal(dir, name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, journalHead)
	if _, err := io.ReadFull(f, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // it was never synced
	} else if err != nil {
		return err
	}
	at := journalHead - 4
	if string(head[:len(journalMagic)]) != journalMagic || binary.BigEndian.Uint32(head[at:]) != crc32.Checksum(head[:at], castagnoli) {
		return nil // likewise
	}
	n := len(journalMagic) + 8
	logFile, err := os.OpenFile(logFileName(dir, int(binary.BigEndian.Uint64(head[n:]))), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all of it is in tables
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logFile.Close()) }()
	logHead := make([]byte, logHeadBytes)
	if _, err := logFile.ReadAt(logHead, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(logHead, head[n+8:at]) {
		return nil // another log file of the same number
	}
	return replay(f, nonceOf(head), logFile)
}

// replay writes the records to their places, up to the first that is not whole or does not go on where the one before ends.
func replay(journal io.Reader, nonce uint32, logFile io.WriterAt) error {
	buf := make([]byte, recordHead+maxRecord)
	for next := int64(logHeadBytes); ; {
		if _, err := io.ReadFull(journal, buf[:recordHead]); err != nil {
			return ended(err)
		}
		n := binary.BigEndian.Uint32(buf[8:])
		if binary.BigEndian.Uint64(buf) != uint64(next) || n == 0 || n > maxRecord {
			return nil
		}
		record := buf[:recordHead+n]
		if _, err := io.ReadFull(journal, record[recordHead:]); err != nil {
			return ended(err)
		}
		if binary.BigEndian.Uint32(record[12:]) != recordSum(nonce, record) {
			return nil
		}
		if _, err := logFile.WriteAt(record[recordHead:], next); err != nil {
			return err
		}
		next += int64(n)
	}
}

// ended is nil where the file has ended.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// removeJournals deletes the journals, for good before Badger makes another log file.
func removeJournals(dir string) error {
	names, err := filesOf(dir, journalExt)
	if err != nil || len(names) == 0 {
		return err
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("store: remove a journal: %w", err)
		}
	}
	return syncDir(dir)
}

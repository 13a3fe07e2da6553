package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
	"gocloud.dev/gcerrors"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Data files (see the package comment for the format). A writer or reader holds one block in
// memory and belongs to one goroutine.

const (
	dataMagic   = "PRCBKUP1"
	blockHeader = 12
	// blockBytes is the total of recordBytes at which a block ends. maxBlock is the maximum that a
	// reader accepts: a block and one further record, of the largest cell.
	blockBytes = 256 << 10
	maxBlock   = 32 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dataWriter writes one data file.
type dataWriter struct {
	w     io.Writer // writes to the object and sum
	sum   hash.Hash
	zip   *zstd.Encoder
	block []byte
	out   []byte
	row   string
	file  File // describes the part written so far
}

// newDataWriter starts a file with records of the range.
func newDataWriter(w io.Writer, r Range, name string) (*dataWriter, error) {
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, coded.Errorf("", "backup: create the compressor: %w", err)
	}
	d := &dataWriter{sum: sha256.New(), zip: zip, file: File{Range: r, Name: name}}
	d.w = io.MultiWriter(w, d.sum)
	return d, d.write([]byte(dataMagic))
}

func (d *dataWriter) write(b []byte) error {
	n, err := d.w.Write(b)
	d.file.Size += int64(n)
	if err != nil {
		return coded.Errorf("", "backup: write %s: %w", d.file.Name, err)
	}
	return nil
}

// recordBytes returns the bytes of a record's row, column and value, which limits and progress count.
func recordBytes(c *mvcc.ReadCell) int64 {
	return int64(len(c.Cell.Row) + len(c.Cell.Column) + len(c.Value))
}

// add writes a record.
func (d *dataWriter) add(c *mvcc.ReadCell) (err error) {
	record := wire.BackupRecord{
		Row: wire.Bytes(c.Cell.Row), Class: uint32(c.Cell.Class), Column: wire.Bytes(c.Cell.Column),
		StartTs: uint64(c.StartTS), CommitTs: uint64(c.CommitTS), Deleted: c.Deleted, Value: c.Value,
	}
	d.block = binary.AppendUvarint(d.block, uint64(proto.Size(&record)))
	if d.block, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(d.block, &record); err != nil {
		return coded.Errorf("", "backup: encode a record: %w", err)
	}
	if d.file.Records == 0 || c.Cell.Row != d.row {
		d.file.Rows++
		d.row = c.Cell.Row
	}
	d.file.Records++
	d.file.Bytes += recordBytes(c)
	if len(d.block) < blockBytes {
		return nil
	}
	return d.flush()
}

// flush writes the block.
func (d *dataWriter) flush() error {
	d.out = d.zip.EncodeAll(d.block, append(d.out[:0], make([]byte, blockHeader)...))
	binary.LittleEndian.PutUint32(d.out, uint32(len(d.out)-blockHeader))
	binary.LittleEndian.PutUint32(d.out[4:], uint32(len(d.block)))
	binary.LittleEndian.PutUint32(d.out[8:], blockSum(d.out[:8], d.out[blockHeader:]))
	d.block = d.block[:0]
	return d.write(d.out)
}

// blockSum returns the checksum of a block.
func blockSum(lengths, content []byte) uint32 {
	return crc32.Update(crc32.Checksum(lengths, castagnoli), castagnoli, content)
}

// end writes the remaining records and returns the file's description for the manifest.
func (d *dataWriter) end() (File, error) {
	if len(d.block) > 0 {
		if err := d.flush(); err != nil {
			return File{}, err
		}
	}
	last := make([]byte, blockHeader)
	binary.LittleEndian.PutUint32(last[8:], blockSum(last[:8], nil))
	err := errors.Join(d.write(last), d.zip.Close())
	d.file.SHA256 = hex.EncodeToString(d.sum.Sum(nil))
	return d.file, err
}

// dataReader reads one data file. Each returned record has been verified by its block's checksum;
// the whole file is verified once next has returned io.EOF.
type dataReader struct {
	m       *Manifest
	file    *File
	object  io.ReadCloser
	from    *bufio.Reader
	sum     hash.Hash
	size    int64
	unzip   *zstd.Decoder
	block   []byte // unread part
	last    mvcc.ReadCell
	records int64
	in      []byte
	raw     []byte
}

// openData opens a data file of a backup.
func (l *Location) openData(ctx context.Context, m *Manifest, f *File) (*dataReader, error) {
	object, err := l.bucket.NewReader(ctx, m.path(f.Name), nil)
	switch {
	case gcerrors.Code(err) == gcerrors.NotFound:
		return nil, coded.Errorf("", "%w: %s is missing", ErrDamaged, m.path(f.Name))
	case err != nil:
		return nil, coded.Errorf("", "backup: read %s: %w", m.path(f.Name), err)
	}
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		_ = object.Close()
		return nil, coded.Errorf("", "backup: create the decompressor: %w", err)
	}
	d := &dataReader{m: m, file: f, object: object, sum: sha256.New(), unzip: unzip}
	d.from = bufio.NewReaderSize(object, 1<<18)
	magic := make([]byte, len(dataMagic))
	if err := d.read(magic); err != nil {
		d.close()
		return nil, err
	}
	if string(magic) != dataMagic {
		d.close()
		return nil, d.damaged("it does not start with %q", dataMagic)
	}
	return d, nil
}

func (d *dataReader) close() {
	_ = d.object.Close()
	d.unzip.Close()
}

func (d *dataReader) damaged(format string, args ...any) error {
	return coded.Errorf("", "%w: %s at byte %d: %s", ErrDamaged, d.m.path(d.file.Name), d.size,
		fmt.Sprintf(format, args...))
}

// read fills b with the next bytes of the file.
func (d *dataReader) read(b []byte) error {
	n, err := io.ReadFull(d.from, b)
	d.sum.Write(b[:n])
	d.size += int64(n)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return d.damaged("it ends too soon")
	case err != nil:
		return coded.Errorf("", "backup: read %s: %w", d.m.path(d.file.Name), err)
	}
	return nil
}

// next returns the next record, or io.EOF after the last.
func (d *dataReader) next() (*mvcc.ReadCell, error) {
	for len(d.block) == 0 {
		if err := d.nextBlock(); err != nil {
			return nil, err
		}
	}
	size, n := binary.Uvarint(d.block)
	if n <= 0 || size > uint64(len(d.block)-n) {
		return nil, d.damaged("a record is cut off")
	}
	var r wire.BackupRecord
	if err := proto.Unmarshal(d.block[n:n+int(size)], &r); err != nil {
		return nil, d.damaged("a record can't be decoded: %v", err)
	}
	d.block = d.block[n+int(size):]
	cell := mvcc.Cell{
		Table: mvcc.TableID(d.file.Table), Row: wire.String(r.Row), Class: mvcc.Class(r.Class),
		Column: wire.String(r.Column),
	}
	c := mvcc.ReadCell{
		Cell: cell, Value: r.Value, Deleted: r.Deleted,
		StartTS: mvcc.Timestamp(r.StartTs), CommitTS: mvcc.Timestamp(r.CommitTs),
	}
	if err := d.check(&c); err != nil {
		return nil, err
	}
	d.last, d.records = c, d.records+1
	return &c, nil
}

// check rejects a record that cannot be in this file.
func (d *dataReader) check(c *mvcc.ReadCell) error {
	switch span := d.file.span(); {
	case !span.Contains(c.Cell.Row):
		return d.damaged("row %q is outside of the file's range", c.Cell.Row)
	case c.StartTS == 0 || c.StartTS >= c.CommitTS || uint64(c.CommitTS) > d.m.At ||
		uint64(c.CommitTS) <= d.m.Since:
		return d.damaged("row %q has the timestamps %d and %d", c.Cell.Row, c.StartTS, c.CommitTS)
	case d.records == 0:
		return nil
	}
	order := d.last.Cell.Compare(c.Cell)
	if order > 0 || (order == 0 && c.CommitTS >= d.last.CommitTS) {
		return d.damaged("row %q is out of order", c.Cell.Row)
	}
	return nil
}

// nextBlock reads a block, or returns io.EOF at the end of a file that matches the manifest.
func (d *dataReader) nextBlock() error {
	var header [blockHeader]byte
	if err := d.read(header[:]); err != nil {
		return err
	}
	packed, size := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint32(header[4:])
	if packed > maxBlock || size > maxBlock {
		return d.damaged("a block has %d bytes, more than %d", max(packed, size), maxBlock)
	}
	if cap(d.in) < int(packed) {
		d.in = make([]byte, packed)
	}
	d.in = d.in[:packed]
	if err := d.read(d.in); err != nil {
		return err
	}
	if blockSum(header[:8], d.in) != binary.LittleEndian.Uint32(header[8:]) {
		return d.damaged("a block does not match its checksum")
	}
	if packed == 0 {
		return d.end()
	}
	raw, err := d.unzip.DecodeAll(d.in, d.raw[:0])
	switch {
	case err != nil:
		return d.damaged("a block can't be decompressed: %v", err)
	case len(raw) != int(size):
		return d.damaged("a block has %d bytes decompressed, not %d as its header says", len(raw), size)
	}
	d.raw, d.block = raw, raw
	return nil
}

// end compares the whole file with the manifest.
func (d *dataReader) end() error {
	if _, err := d.from.ReadByte(); !errors.Is(err, io.EOF) {
		return d.damaged("it has data behind its end")
	}
	if sum := hex.EncodeToString(d.sum.Sum(nil)); d.size != d.file.Size ||
		d.records != d.file.Records || sum != d.file.SHA256 {
		return d.damaged("%d bytes, %d records and SHA-256 %s differ from the manifest", d.size,
			d.records, sum)
	}
	return io.EOF
}

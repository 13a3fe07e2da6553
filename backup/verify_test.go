package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestUnreadableAncestor: a location that cannot be read is no fault of the backup.
func TestUnreadableAncestor(t *testing.T) {
	dir := t.TempDir()
	l, err := OpenNew(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	v, child := &verifyRun{work: newWork(nil, l, Options{})}, &Manifest{Name: "child", Parent: "parent"}
	if err := v.chain(t.Context(), child); err != nil || len(v.found.Faults) != 1 ||
		!errors.Is(v.found.Faults[0], ErrNotFound) {
		t.Errorf("a missing parent: %v, faults %v", err, v.found.Faults)
	}
	if err := os.Symlink("parent", filepath.Join(dir, "parent")); err != nil { // to itself
		t.Fatal(err)
	}
	if err := v.chain(t.Context(), child); err == nil || len(v.found.Faults) != 1 {
		t.Errorf("an unreadable parent: %v, faults %v", err, v.found.Faults)
	}
}

// TestWrongLength: the error about a block of another length than its header says names both lengths.
func TestWrongLength(t *testing.T) {
	zip, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	unzip, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unzip.Close()
	packed := zip.EncodeAll([]byte("five!"), nil)
	header := binary.LittleEndian.AppendUint32(nil, uint32(len(packed)))
	header = binary.LittleEndian.AppendUint32(header, 6)
	block := append(binary.LittleEndian.AppendUint32(header, blockSum(header, packed)), packed...)
	d := &dataReader{
		m: &Manifest{}, file: &File{}, from: bufio.NewReader(bytes.NewReader(block)), sum: sha256.New(), unzip: unzip,
	}
	if err := d.nextBlock(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "5 bytes decompressed, not 6") {
		t.Error(err)
	}
}

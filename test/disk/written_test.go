package disk_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/percolator-go/percolator/test/disk"
)

// TestWritten: a file that is written and synced counts once, plus little overhead of the file
// system. If it is overwritten and synced, it counts again.
func TestWritten(t *testing.T) {
	d := disk.New(t, 256<<20)
	const size, slack = 8 << 20, 1 << 20
	file, content := filepath.Join(d.Dir(), "file"), make([]byte, size)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		before, err := d.Written()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(file, content, 0o600), d.Sync()); err != nil {
			t.Fatal(err)
		}
		after, err := d.Written()
		if err != nil {
			t.Fatal(err)
		}
		if n := after - before; n < size || n > size+slack {
			t.Errorf("round %d: %d bytes reached the device, want %d and at most %d more", round, n,
				size, slack)
		}
	}
}

package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Power losses worse than those of the file system at hand: each page of Badger's log files,
// which Badger does not sync itself, is randomly the one of the last sync of everything or the
// latest one, and files removed since then may be back.

const page = 4096

// Files returns the contents of a directory's files by name. The process that writes them must be
// stopped.
func Files(dir string) (map[string][]byte, error) {
	names, err := os.ReadDir(dir)
	files := map[string][]byte{}
	for _, e := range names {
		b, fault := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, fault)
		files[e.Name()] = b
	}
	return files, err
}

// Replace replaces the directory's contents with the files.
func Replace(dir string, files map[string][]byte) error {
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
	for name, b := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
	}
	return err
}

// Torn returns the files of Badger's directory after a power loss, from those at the last sync
// and the latest ones.
func Torn(rng *rand.Rand, durable, end map[string][]byte) map[string][]byte {
	after := map[string][]byte{}
	for name, b := range end {
		switch old, known := durable[name]; {
		case filepath.Ext(name) == ".sst" || name == "MANIFEST" || name == "KEYREGISTRY":
			// Badger syncs a table before the manifest names it, and then the manifest.
			after[name] = b
		case known:
			after[name] = mix(rng, old, b)
		case rng.IntN(4) > 0:
			after[name] = mix(rng, nil, b)
		case rng.IntN(2) == 0:
			after[name] = nil // it exists, but is empty
		}
	}
	// File systems persist removals in their order: of the log files that were removed, only
	// the last ones can be back.
	removed := removedLogs(durable, end)
	for _, name := range removed[rng.IntN(2*len(removed)+1)%(len(removed)+1):] {
		after[name] = durable[name]
	}
	return after
}

// mix takes each page from one of two contents of a file.
func mix(rng *rand.Rand, durable, end []byte) []byte {
	b := make([]byte, len(end))
	copy(b, durable)
	survive := rng.IntN(4)
	for at := 0; at < len(end); at += page {
		if to := min(at+page, len(end)); rng.IntN(3) < survive {
			copy(b[at:to], end[at:to])
		}
	}
	return b
}

// removedLogs returns the log files of memtables that were removed, in their order.
func removedLogs(durable, end map[string][]byte) (names []string) {
	for id := range 10_000 {
		name := fmt.Sprintf("%05d.mem", id)
		if _, there := end[name]; !there && durable[name] != nil {
			names = append(names, name)
		}
	}
	return names
}

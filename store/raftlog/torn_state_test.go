package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/test/disk"
)

// This file makes power losses that are worse than those of a file system at hand: of
// what Badger does not sync itself, its log files, each page is as it was at the last
// checkpoint or as it was in the end, whichever the dice say, and files that it has
// removed since may be back.

const page = 4096

// snapshotOf copies the files of a directory whose process stands still.
func snapshotOf(dir string) (map[string][]byte, error) {
	names, err := os.ReadDir(dir)
	files := map[string][]byte{}
	for _, e := range names {
		b, fault := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, fault)
		files[e.Name()] = b
	}
	return files, err
}

// mix takes each page from one of two contents of a file.
func mix(rng *rand.Rand, then, now []byte) []byte {
	b := make([]byte, len(now))
	copy(b, then)
	survive := rng.IntN(4)
	for at := 0; at < len(now); at += page {
		if to := min(at+page, len(now)); rng.IntN(3) < survive {
			copy(b[at:to], now[at:to])
		}
	}
	return b
}

// tear is the directory after a power loss, of what it was when it was last made durable
// and in the end.
func tear(rng *rand.Rand, then, now map[string][]byte) map[string][]byte {
	after := map[string][]byte{}
	for name, b := range now {
		switch old, known := then[name], then[name] != nil; {
		case filepath.Ext(name) == ".sst" || name == "MANIFEST" || name == "KEYREGISTRY":
			after[name] = b // Badger syncs a table before the manifest names it, and every change of that
		case known:
			after[name] = mix(rng, old, b)
		case rng.IntN(4) > 0:
			after[name] = mix(rng, nil, b)
		case rng.IntN(2) == 0:
			after[name] = nil // made, and no more
		}
	}
	// File systems keep the order of names: of the log files that were removed, the last
	// few are back.
	from := rng.IntN(2 * (len(then) + 1))
	for name, b := range then {
		if fid, err := strconv.Atoi(strings.TrimSuffix(name, ".mem")); err == nil && now[name] == nil {
			if first := oldest(then); fid >= first+from {
				after[name] = b
			}
		}
	}
	return after
}

// oldest is the lowest number of a log file.
func oldest(files map[string][]byte) int {
	first := -1
	for name := range files {
		fid, err := strconv.Atoi(strings.TrimSuffix(name, ".mem"))
		if err == nil && (first < 0 || fid < first) {
			first = fid
		}
	}
	return first
}

func write(dir string, files map[string][]byte) error {
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
	for name, b := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
	}
	return err
}

// Replay makes the state whatever of Badger's unsynced pages have survived.
func TestReplayTornState(t *testing.T) {
	rng, dir := random(t), t.TempDir()
	rounds := *powerLosses * 2
	if testing.Short() {
		rounds = min(rounds, 6)
	}
	var acked [stateReplicas + 1]uint64
	most := 0
	for i := range rounds {
		replayed, err := tearOnce(t, dir, rng, &acked)
		if err != nil {
			t.Fatalf("REPLAY: round %d: %v", i, err)
		}
		most = max(most, replayed)
	}
	t.Logf("%d rounds, %v entries; replays of %d entries at most", rounds, acked[1:], most)
}

// tearOnce runs the writer until the power fails, and makes of its state what is left.
func tearOnce(
	t *testing.T, dir string, rng *rand.Rand, acked *[stateReplicas + 1]uint64,
) (int, error) {
	w := startWriter(t, dir, writerSyncEnv+"=none", writerStepEnv+"=1")
	defer w.kill()
	replayed, err := w.opened(acked)
	if err != nil {
		return 0, err
	}
	state := filepath.Join(dir, "state")
	var then map[string][]byte
	err = w.follow(1+rng.IntN(600), acked, func() error {
		if err := disk.Freeze(w.cmd.Process.Pid); err != nil {
			return err
		}
		files, err := snapshotOf(state)
		then = files
		_, told := fmt.Fprintln(w.input)
		return errors.Join(err, told, w.cmd.Process.Signal(unix.SIGCONT))
	})
	if err == nil {
		err = disk.Freeze(w.cmd.Process.Pid)
	}
	if err != nil {
		return 0, err
	}
	now, err := snapshotOf(state)
	if w.kill(); err != nil {
		return 0, err
	}
	if then == nil { // no checkpoint in this life
		return replayed, nil
	}
	return replayed, write(state, tear(rng, then, now))
}

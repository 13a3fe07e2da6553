package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/test/disk"
)

// This file makes power losses that are worse than those of a file system at hand: of what Badger does not
// sync itself, its log files, each page is as it was when everything was last made durable or as it was in
// the end, whichever the dice say, and files that it has removed since may be back.

const page = 4096

// filesOf are the files of a directory whose process stands still.
func filesOf(dir string) (map[string][]byte, error) {
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

// torn is Badger's directory after a power loss, of what it was when it was last made durable and in the end.
func torn(rng *rand.Rand, then, now map[string][]byte) map[string][]byte {
	after := map[string][]byte{}
	for name, b := range now {
		switch old, known := then[name]; {
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
	// File systems keep the order of names: of the log files that were removed, the last few are back.
	removed := logFilesGone(then, now)
	for _, name := range removed[rng.IntN(2*len(removed)+1)%(len(removed)+1):] {
		after[name] = then[name]
	}
	return after
}

// logFilesGone are those that were removed, in their order.
func logFilesGone(then, now map[string][]byte) (names []string) {
	for id := range 10_000 {
		name := fmt.Sprintf("%05d.mem", id)
		if _, there := now[name]; !there && then[name] != nil {
			names = append(names, name)
		}
	}
	return names
}

// The log and the state together hold what was acknowledged, whatever of Badger's unsynced pages have survived.
func TestTornState(t *testing.T) {
	rounds := *powerLosses
	if testing.Short() {
		rounds = min(rounds, 4)
	}
	rng, dir, a := crashRand(t), t.TempDir(), &account{w: newWorld()}
	for i := range rounds {
		if err := tearState(t, dir, rng, a, 1+rng.IntN(powerLossMaxActions)); err != nil {
			t.Fatalf("LOST: round %d, after %d actions: %v", i, a.actions, err)
		}
	}
	if err := tearState(t, dir, rng, a, 1); err != nil {
		t.Fatalf("LOST: after the last round and %d actions: %v", a.actions, err)
	}
	t.Logf("%d rounds, %d actions; %d entries applied again at most", rounds, a.actions, a.replayed)
}

// tearState runs the process until the power fails, and makes of its state what is left.
func tearState(t *testing.T, dir string, rng *rand.Rand, a *account, enough int) error {
	state := filepath.Join(dir, "db")
	then, err := filesOf(state)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	v := startVictim(t, dir, crashStepEnv+"=1")
	var now map[string][]byte
	var failed error
	err = a.follow(v, enough, func() bool {
		if failed = disk.Freeze(v.cmd.Process.Pid); failed == nil {
			now, failed = filesOf(state)
		}
		v.kill()
		return true
	}, func() (err error) {
		if err := disk.Freeze(v.cmd.Process.Pid); err != nil {
			return err
		}
		then, err = filesOf(state)
		_, told := fmt.Fprintln(v.input)
		return errors.Join(err, told, v.cmd.Process.Signal(unix.SIGCONT))
	})
	if err = errors.Join(err, failed); err != nil || now == nil { // or it has ended by itself
		return err
	}
	return rewrite(state, torn(rng, then, now))
}

func rewrite(dir string, files map[string][]byte) error {
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
	for name, b := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
	}
	return err
}

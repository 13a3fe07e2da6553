package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/test/disk"
)

// Replay restores the state whichever of Badger's unsynced pages have survived.
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

// tearOnce runs the writer until the power fails, and reduces its state to the surviving pages.
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
		files, err := disk.Files(state)
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
	now, err := disk.Files(state)
	if w.kill(); err != nil {
		return 0, err
	}
	if then == nil { // no checkpoint in this life
		return replayed, nil
	}
	return replayed, disk.Replace(state, disk.Torn(rng, then, now))
}

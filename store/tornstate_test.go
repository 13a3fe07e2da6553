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

// The log and the state together hold everything acknowledged, whichever of Badger's unsynced pages
// have survived.
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

// tearState runs the process until the power fails, and reduces its state to the surviving pages.
func tearState(t *testing.T, dir string, rng *rand.Rand, a *account, enough int) error {
	state := filepath.Join(dir, "db")
	then, err := disk.Files(state)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	v := startVictim(t, dir, crashStepEnv+"=1")
	var now map[string][]byte
	var failed error
	err = a.follow(v, enough, func() bool {
		if failed = disk.Freeze(v.cmd.Process.Pid); failed == nil {
			now, failed = disk.Files(state)
		}
		v.kill()
		return true
	}, func() (err error) {
		if err := disk.Freeze(v.cmd.Process.Pid); err != nil {
			return err
		}
		then, err = disk.Files(state)
		_, told := fmt.Fprintln(v.input)
		return errors.Join(err, told, v.cmd.Process.Signal(unix.SIGCONT))
	})
	if err = errors.Join(err, failed); err != nil || now == nil { // or it has ended without a kill
		return err
	}
	return disk.Replace(state, disk.Torn(rng, then, now))
}

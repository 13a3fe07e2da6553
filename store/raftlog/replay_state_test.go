package raftlog

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/test/disk"
)

var powerLosses = flag.Int("power-losses", 5, "rounds of the tests that lose power")

// The environment makes this test binary the process that the tests below kill.
const (
	writerDirEnv  = "RAFTLOG_WRITER_DIR"
	writerSyncEnv = "RAFTLOG_WRITER_SYNC" // one of durably
	// waits for a line on standard input before each checkpoint
	writerStepEnv = "RAFTLOG_WRITER_STEP"
)

// TestStateWriter is not a test: it opens a machine, replays, compares, and then writes forever.
func TestStateWriter(t *testing.T) {
	dir := os.Getenv(writerDirEnv)
	if dir == "" {
		t.Skip("the process of the tests that lose power")
	}
	m, replayed, err := openMachine(dir)
	if err == nil {
		err = m.verify()
	}
	if err != nil {
		fmt.Println("bad", err)
		return
	}
	fmt.Println("opened", replayed, strings.Trim(fmt.Sprint(m.applied[1:]), "[]"))
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), m.seq))
	w := &stateWriter{
		machine: m, rng: rng, durable: durably[os.Getenv(writerSyncEnv)], done: make(chan error, 1),
	}
	if err := w.run(); err != nil {
		fmt.Println("failed", err)
	}
}

type stateWriter struct {
	*machine
	rng     *rand.Rand
	durable func(dir string) error
	done    chan error // of the checkpoint in progress
	under   *[stateReplicas + 1]uint64
}

func (w *stateWriter) run() error {
	input, seldom := bufio.NewReader(os.Stdin), 20<<w.rng.IntN(6)
	for {
		replica, entries, err := w.step(w.rng)
		if err != nil {
			return err
		}
		fmt.Println("ack", replica, entries[len(entries)-1].GetIndex())
		if err := w.apply(replica, entries); err != nil {
			return err
		}
		if err := w.tear(); err != nil {
			return err
		}
		select {
		case err := <-w.done:
			if fmt.Println("durable"); err == nil && os.Getenv(writerStepEnv) != "" {
				_, err = input.ReadString('\n')
			}
			if err == nil {
				err = w.checkpoint(w.rng, *w.under)
			}
			if err != nil {
				return err
			}
			w.under = nil
		default:
		}
		if w.under == nil && w.rng.IntN(seldom) == 0 {
			applied := w.applied
			w.under = &applied
			go func() { w.done <- w.durable(w.dir) }() // concurrent with applying
			if os.Getenv(writerStepEnv) != "" {
				w.done <- <-w.done
			}
		}
	}
}

// tear makes the kernel write parts of a log file of Badger's, so that the surviving data is not
// the oldest.
func (w *stateWriter) tear() error {
	if w.rng.IntN(15) != 0 {
		return nil
	}
	names, _ := filepath.Glob(filepath.Join(w.dir, "*.mem"))
	if len(names) == 0 {
		return nil
	}
	f, err := os.OpenFile(names[w.rng.IntN(len(names))], os.O_RDWR, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE |
		unix.SYNC_FILE_RANGE_WAIT_AFTER
	for range w.rng.IntN(20) {
		at, n := int64(w.rng.IntN(512))<<12, int64(1+w.rng.IntN(4))<<12
		if err := unix.SyncFileRange(int(f.Fd()), at, n, all); err != nil {
			return err
		}
	}
	return nil
}

// writer is a running TestStateWriter.
type writer struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	input io.Writer
}

func startWriter(t *testing.T, dir string, env ...string) *writer {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStateWriter$", "-test.timeout=10m")
	cmd.Env = append(append(os.Environ(), writerDirEnv+"="+dir), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &writer{cmd: cmd, lines: bufio.NewScanner(out), input: in}
	t.Cleanup(w.kill)
	return w
}

// kill ends the process; it may have ended.
func (w *writer) kill() {
	_ = w.cmd.Process.Kill()
	for w.lines.Scan() { // its remaining output
	}
	_ = w.cmd.Wait()
}

// opened waits until the process has replayed and compared, and checks that nothing is lost.
func (w *writer) opened(acked *[stateReplicas + 1]uint64) (replayed int, err error) {
	for w.lines.Scan() {
		switch verb, rest, _ := strings.Cut(w.lines.Text(), " "); verb {
		case "opened":
			var got [stateReplicas + 1]uint64
			if _, err := fmt.Sscan(rest, &replayed, &got[1], &got[2], &got[3]); err != nil {
				return 0, err
			}
			for r := range got {
				if got[r] < acked[r] {
					return 0, fmt.Errorf(
						"entry %d of replica %d was acknowledged, and the last is %d",
						acked[r], r, got[r])
				}
			}
			*acked = got
			return replayed, nil
		case "bad":
			return 0, fmt.Errorf("after replay: %s", rest)
		}
	}
	return 0, fmt.Errorf("the process ended: %w", w.cmd.Wait())
}

// follow reads n acknowledgments.
func (w *writer) follow(n int, acked *[stateReplicas + 1]uint64, durable func() error) error {
	for n > 0 && w.lines.Scan() {
		switch verb, rest, _ := strings.Cut(w.lines.Text(), " "); verb {
		case "ack":
			var r, index uint64
			if _, err := fmt.Sscan(rest, &r, &index); err != nil {
				return err
			}
			acked[r] = max(acked[r], index)
			n--
		case "durable":
			if err := durable(); err != nil {
				return err
			}
		case "failed":
			return fmt.Errorf("the writer failed: %s", rest)
		}
	}
	if n > 0 {
		return fmt.Errorf("the writer ended: %w", w.cmd.Wait())
	}
	return nil
}

func nothing() error { return nil }

// With syncs of the log, and of Badger's files now and then, a power loss leaves a state from which
// replay restores the earlier one: at any moment, with any of Badger's pages written or not.
func TestReplayAfterPowerLoss(t *testing.T) {
	for _, way := range []string{"syncfs", "fsync"} {
		t.Run(way, func(t *testing.T) {
			rounds := *powerLosses
			if testing.Short() {
				rounds = min(rounds, 3)
			}
			d, rng := disk.New(t, 1<<30), random(t)
			var acked [stateReplicas + 1]uint64
			most, total := 0, 0
			for i := range rounds {
				replayed, err := loseOnce(t, d, rng, way, &acked, i%2 == 0)
				if err != nil {
					t.Fatalf("REPLAY: power loss %d: %v", i, err)
				}
				most, total = max(most, replayed), total+replayed
			}
			t.Logf("%d power losses, %v entries; replays of %d entries at most, %d on the average",
				rounds, acked[1:], most, total/rounds)
		})
	}
}

// loseOnce runs the writer until the power fails and restores the files.
func loseOnce(
	t *testing.T, d *disk.Disk, rng *rand.Rand, way string,
	acked *[stateReplicas + 1]uint64, freeze bool,
) (int, error) {
	w := startWriter(t, d.Dir(), writerSyncEnv+"="+way)
	replayed, err := w.opened(acked)
	if err == nil {
		err = w.follow(1+rng.IntN(600), acked, nothing)
	}
	if err == nil && freeze {
		err = disk.Freeze(w.cmd.Process.Pid)
	}
	if err == nil {
		if cut := d.Cut(); cut != nil {
			t.Skipf("EXT4_IOC_SHUTDOWN is not possible here: %v", cut)
		}
	}
	w.kill()
	if err != nil {
		return 0, err
	}
	if err := d.Unmount(); err != nil {
		return 0, err
	}
	return replayed, d.Mount()
}

// TestReplayFindsMissingSync: the check of TestReplayAfterPowerLoss can fail. If checkpoints make
// nothing durable, it does.
func TestReplayFindsMissingSync(t *testing.T) {
	d, rng := disk.New(t, 1<<30), random(t)
	var acked [stateReplicas + 1]uint64
	for i := range 40 {
		if _, err := loseOnce(t, d, rng, "none", &acked, true); err != nil {
			t.Logf("found after %d power losses, as it should be: %v", i, err)
			return
		}
	}
	t.Error("nothing was lost without syncs: this test cannot see what it is for")
}

// After a kill at any moment, which loses no written page, replay restores the earlier state.
func TestReplayAfterKill(t *testing.T) {
	dir, rng := t.TempDir(), random(t)
	var acked [stateReplicas + 1]uint64
	rounds := *powerLosses
	if testing.Short() {
		rounds = min(rounds, 3)
	}
	for i := range rounds {
		w := startWriter(t, dir, writerSyncEnv+"=none")
		_, err := w.opened(&acked)
		if err == nil {
			err = w.follow(1+rng.IntN(400), &acked, nothing)
		}
		w.kill()
		if err != nil {
			t.Fatalf("REPLAY: kill %d: %v", i, err)
		}
	}
}

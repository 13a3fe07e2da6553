package store_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/store"
)

var (
	kills       = flag.Int("kills", 10, "rounds of TestKill")
	powerLosses = flag.Int("power-losses", 8, "rounds of TestPowerLoss and TestTornState")
	crashSeed   = flag.Uint64("crash-seed", 0,
		"seed of the tests that kill a process or its power; 0 picks one")
)

// The environment makes this test binary the process killed by the crash tests.
const (
	crashDirEnv    = "STORE_CRASH_DIR"
	crashNoSyncEnv = "STORE_CRASH_NOSYNC"
	// waits for a line on standard input before making everything durable
	crashStepEnv     = "STORE_CRASH_STEP"
	crashMemTableEnv = "STORE_CRASH_MEMTABLE" // bytes; the minimum if it is not set
)

// The lines printed by the process.
const (
	// the number of the last surviving action; the answer is the expected world
	saysFound   = "found"
	saysOpened  = "opened"  // number of entries applied again, with the expected result
	saysBegin   = "begin"   // start of an action
	saysDone    = "done"    // the number of an action that is durable
	saysDurable = "durable" // see crashStepEnv
	saysFailed  = "failed"
)

func crashOptions(dir string) store.Options {
	memTable, _ := strconv.ParseInt(os.Getenv(crashMemTableEnv), 10, 64)
	o := store.Options{
		// small: tables are flushed continuously
		Dir: dir, MemTableSize: max(memTable, 2<<20), MinFreeBytes: 8 << 20,
		NoSync: os.Getenv(crashNoSyncEnv) != "", ReclaimInterval: -1,
	}
	if os.Getenv(crashStepEnv) != "" {
		store.BeforeSync(&o, func() error {
			say(saysDurable, "")
			_, err := crashInput.ReadString('\n')
			return err
		})
	}
	return o
}

var crashInput = bufio.NewReader(os.Stdin)

// say writes a line at once: a kill leaves complete lines, and at most one partial last line.
func say(verb string, what any) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	// the reader has killed this process
	_, _ = os.Stdout.WriteString(verb + " " + string(text) + "\n")
}

// TestCrashWriter is the process that the crash tests kill, not a test.
func TestCrashWriter(t *testing.T) {
	dir := os.Getenv(crashDirEnv)
	if dir == "" {
		t.Skip("the process of the tests that kill one")
	}
	if err := crashWriter(dir); err != nil {
		say(saysFailed, err.Error())
	}
}

func crashWriter(dir string) error {
	s, err := store.Open(crashOptions(dir))
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())))
	m, err := openMachine(s, rand.New(rand.NewPCG(rng.Uint64(), 0)))
	if err != nil {
		return err
	}
	n, err := m.number()
	if err != nil {
		return err
	}
	say(saysFound, n)
	w := newWorld()
	answer, err := crashInput.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(answer, w)
	}
	if err != nil {
		return err
	}
	replayed, err := m.replay(w)
	if err == nil {
		err = m.check(w)
	}
	if err != nil {
		return err
	}
	say(saysOpened, replayed)
	c := &crasher{machine: m, w: w, rng: rng, work: make(chan func() error), idle: make(chan error)}
	go c.commitAll()
	return errors.Join(c.run(), c.end(), s.Close())
}

// crasher executes actions until it is killed: appends on one goroutine, commits concurrently on
// another, and checkpoints on a third.
type crasher struct {
	*machine
	w          *world
	rng        *rand.Rand
	work       chan func() error // for the goroutine that commits
	idle       chan error        // result of each
	busy       bool              // a result is pending
	checkpoint chan error        // of the checkpoint in progress; nil: there is none
}

func (c *crasher) commitAll() {
	for f := range c.work {
		c.idle <- f()
	}
}

// settle waits for the commit in progress.
func (c *crasher) settle() error {
	if !c.busy {
		return nil
	}
	c.busy = false
	return <-c.idle
}

// end waits for everything in progress.
func (c *crasher) end() error {
	err := c.settle()
	close(c.work)
	if c.checkpoint != nil {
		err = errors.Join(err, <-c.checkpoint)
	}
	return err
}

// run returns after enough actions.
func (c *crasher) run() error {
	seldom, last, calm := 10<<c.rng.IntN(6), 100<<c.rng.IntN(6), c.rng.IntN(2) == 0
	for {
		a := c.w.next(c.rng, calm)
		c.w.apply(a)
		say(saysBegin, a)
		if err := c.carryOut(a); err != nil {
			return err
		}
		if a.Kind != commitEntries {
			say(saysDone, a.N)
		}
		if err := c.tear(); err != nil {
			return err
		}
		select {
		case err := <-c.checkpoint:
			if c.checkpoint = nil; err != nil {
				return err
			}
		default:
		}
		if c.checkpoint == nil && c.rng.IntN(seldom) == 0 {
			done := make(chan error, 1)
			c.checkpoint = done
			go func() { done <- c.s.Checkpoint() }()
		}
		if c.rng.IntN(last) == 0 {
			return nil
		}
	}
}

func (c *crasher) carryOut(a action) error {
	if a.Kind == appendEntries {
		return c.append(c.rng, a)
	}
	if err := c.settle(); err != nil {
		return err
	}
	if a.Kind != commitEntries {
		return c.do(a)
	}
	tablets := len(c.tablets)
	c.work <- func() error { return c.commit(a.Logs...) }
	// An entry splits a tablet; the new one has no log before the commit is done.
	if c.busy = true; tablets < len(c.w.Tablets) {
		return c.settle()
	}
	return nil
}

// tear makes the kernel write parts of a log file of Badger's, so that the surviving data is not
// the oldest.
func (c *crasher) tear() error {
	dir := os.Getenv(crashDirEnv)
	names, _ := filepath.Glob(filepath.Join(dir, "db", "*.mem"))
	if len(names) == 0 || c.rng.IntN(15) != 0 {
		return nil
	}
	f, err := os.OpenFile(names[c.rng.IntN(len(names))], os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	for range c.rng.IntN(20) {
		at, n := int64(c.rng.IntN(512))<<12, int64(1+c.rng.IntN(4))<<12
		if err := unix.SyncFileRange(int(f.Fd()), at, n, all); err != nil {
			return err
		}
	}
	return nil
}

// victim is a running process.
type victim struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader
	input  io.Writer
	errors bytes.Buffer
}

func startVictim(t *testing.T, dir string, env ...string) *victim {
	t.Helper()
	v := &victim{cmd: exec.Command(os.Args[0], "-test.run=^TestCrashWriter$", "-test.timeout=10m")}
	v.cmd.Env = append(append(os.Environ(), crashDirEnv+"="+dir), env...)
	v.cmd.Stderr = &v.errors
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if v.input, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.lines = bufio.NewReader(out)
	t.Cleanup(v.kill)
	return v
}

// kill ends the process, which may have ended already.
func (v *victim) kill() { _ = v.cmd.Process.Kill() }

// line returns the next line; no verb: the process has ended.
func (v *victim) line() (verb, rest string) {
	line, err := v.lines.ReadString('\n')
	if err != nil { // or it was truncated, and the announced action never began
		_ = v.cmd.Wait()
		return "", ""
	}
	verb, rest, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	return verb, rest
}

// account is the record of a test that kills a process.
type account struct {
	w        *world
	open     []action // begun since
	done     uint64   // number of the last action that must survive
	actions  int      // in all lives
	replayed int      // maximum number of entries applied again in one life
}

// resume sets the world to the state after the last surviving action: some entries of later actions
// may have been applied.
func (a *account) resume(n uint64) error {
	if n < a.done {
		return fmt.Errorf("lost: action %d was acknowledged, and the last is %d", a.done, n)
	}
	for len(a.open) > 0 && (a.open[0].N <= n || a.open[0].Kind == commitEntries) {
		a.w.apply(a.open[0])
		a.open = a.open[1:]
	}
	if n > a.w.N {
		return fmt.Errorf("lost: the last action is %d, and none of that number has begun after %d",
			n, a.w.N)
	}
	a.open, a.done = nil, n
	return nil
}

// follow reads a process's output until it ends, and calls crash after enough actions, and done for
// each point where everything is to be made durable. Acknowledgments after a crash count only if
// crash says so.
func (a *account) follow(v *victim, enough int, crash func() (later bool),
	durable func() error) error {
	var failed error
	crashed := false
	for actions, count := 0, true; ; {
		verb, rest := v.line()
		var err error
		switch verb {
		case "":
			if state := v.cmd.ProcessState; failed == nil && count && state.Exited() &&
				!state.Success() {
				failed = fmt.Errorf("the process ended: %v", state)
			}
			if failed != nil {
				return fmt.Errorf("%w %s", failed, v.errors.String())
			}
			return nil
		case saysFound:
			var n uint64
			if err = json.Unmarshal([]byte(rest), &n); err == nil {
				err = a.resume(n)
			}
			if err == nil {
				err = json.NewEncoder(v.input).Encode(a.w)
			}
		case saysOpened:
			n := 0
			err = json.Unmarshal([]byte(rest), &n)
			a.replayed = max(a.replayed, n)
		case saysBegin:
			var next action
			err = json.Unmarshal([]byte(rest), &next)
			a.open = append(a.open, next)
			if actions++; actions == enough {
				count, crashed = crash(), true
			}
			a.actions++
		case saysDone:
			if count {
				err = json.Unmarshal([]byte(rest), &a.done)
			}
		case saysDurable:
			if !crashed {
				err = durable()
			}
		case saysFailed:
			if count {
				err = errors.New(rest)
			}
		}
		if err != nil {
			v.kill()
			failed = errors.Join(failed, err)
		}
	}
}

func crashRand(t *testing.T) *rand.Rand {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-crash-seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A process killed at any moment has lost nothing acknowledged, and the effects of each entry are
// complete after the entries were applied again, also if its memtables were larger than those at
// the next opening. Some processes end without a kill.
func TestKill(t *testing.T) {
	rounds := *kills
	if testing.Short() {
		rounds = min(rounds, 3)
	}
	rng, dir, a := crashRand(t), t.TempDir(), &account{w: newWorld()}
	for i := range rounds {
		v := startVictim(t, dir, fmt.Sprintf("%s=%d", crashMemTableEnv, 2<<(20+rng.IntN(3))))
		enough := rng.IntN(400)
		if enough == 0 { // during Open or soon after
			time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, v.kill)
		}
		delay := time.Duration(rng.IntN(1500)) * time.Microsecond
		err := a.follow(v, enough, func() bool { time.AfterFunc(delay, v.kill); return true }, nil)
		if err != nil {
			t.Fatalf("LOST: kill %d, after %d actions: %v", i, a.actions, err)
		}
	}
	t.Logf("%d kills, %d actions; %d entries applied again at most", rounds, a.actions, a.replayed)
}

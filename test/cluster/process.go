package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/test/disk"
)

// childArgs carries a node's command line to the child process.
const childArgs = "PERCOLATOR_TEST_CLUSTER_NODE"

// Main runs a node and does not return if this process was started as one. observers may be nil.
func Main(observers func(*percolator.Registry)) {
	args, ok := os.LookupEnv(childArgs)
	if !ok {
		return
	}
	_ = os.Unsetenv(childArgs)
	os.Args = append(os.Args[:1], strings.Split(args, "\x1f")...)
	app.Main(observers)
}

// Process is one node. Its methods belong to one goroutine at a time.
type Process struct {
	Index  int
	Listen string // host:port for clients
	HTTP   string
	Dir    string     // the node's directory
	Disk   *disk.Disk // where Dir is, if its power can fail
	// Binary, if not empty, replaces the cluster's binary from the next Start on.
	Binary string

	cluster *Cluster
	certs   string // its folder; empty: none
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	err     error         // how; after ended
	paused  bool
	ending  bool // Kill or Terminate was called
	// its directory was emptied: it is no longer a founding node
	wiped  bool
	tracer *exec.Cmd // strace, while syncs are slowed or failed
}

// ErrRunning and ErrNotRunning report that a node is in the wrong state for the call.
var (
	ErrRunning    = errors.New("cluster: the node is already running")
	ErrNotRunning = errors.New("cluster: the node is not running")
)

// Start starts the node on its directory. It does not wait until it serves.
func (p *Process) Start() error {
	if p.Running() {
		return ErrRunning
	}
	words, env, err := p.command()
	if err != nil {
		return err
	}
	if d := p.cluster.cfg.SyncDelay; d > 0 {
		if words, err = slowed(words, d); err != nil {
			return err
		}
	}
	if h := p.cluster.hosts; h != nil {
		// Not by `ip netns exec`, which makes a mount namespace too: there, the disks of
		// other nodes would stay mounted.
		words = append([]string{"nsenter", "--net=/run/netns/" + h.Namespace(p.Index)}, words...)
	}
	if p.cluster.cfg.Memory > 0 {
		if words, err = p.confined(words); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// nsenter replaces itself by the program: the pid is the node's
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(append(os.Environ(), p.cluster.cfg.Env...), env...)
	cmd.Stdout, cmd.Stderr = log, log
	// The node ends with this process, even if that is killed; interrupts from the terminal do
	// not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.paused, p.ending = cmd, ended, false, false
	go func() { // ends with the process, which Close kills
		p.err = cmd.Wait()
		close(ended)
	}()
	return p.cluster.limit(p)
}

// Log returns the path of the node's log; restarts append to it.
func (p *Process) Log() string {
	return filepath.Join(p.cluster.cfg.Dir, fmt.Sprintf("node-%d.log", p.Index))
}

// command returns the node's command line and its additional environment.
func (p *Process) command() (words, env []string, err error) {
	args := p.cluster.args(p)
	if binary := cmp.Or(p.Binary, p.cluster.cfg.Binary); binary != "" {
		return append([]string{binary}, args...), nil, nil
	}
	self, err := os.Executable()
	return []string{self}, []string{childArgs + "=" + strings.Join(args, "\x1f")}, err
}

// Running reports whether the process exists, paused or not.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Died returns an error if the process was started and has ended without Kill or Terminate.
func (p *Process) Died() error {
	if p.cmd == nil || p.ending || p.Running() {
		return nil
	}
	if p.err == nil {
		return fmt.Errorf("cluster: node %d has ended unexpectedly, with exit code 0", p.Index)
	}
	return fmt.Errorf("cluster: node %d has ended unexpectedly: %w", p.Index, p.err)
}

// Wipe empties the directory of a node that is not running, so that it starts as a new node and
// joins the others.
func (p *Process) Wipe() error {
	if p.Running() {
		return ErrRunning
	}
	p.wiped = true
	return os.RemoveAll(p.Dir)
}

// PID returns the process id, or 0 if the node is not running.
func (p *Process) PID() int {
	if !p.Running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Kill sends SIGKILL to the node and waits for its end.
func (p *Process) Kill() error {
	if !p.Running() {
		return ErrNotRunning
	}
	p.ending = true
	p.endTrace()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// Pause suspends the process by SIGSTOP; Resume continues it.
func (p *Process) Pause() error {
	if !p.Running() {
		return ErrNotRunning
	}
	p.paused = true
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

// Resume ends a pause.
func (p *Process) Resume() error {
	if !p.Running() {
		return ErrNotRunning
	}
	p.paused = false
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// Terminate sends SIGTERM to the node, and fails if it does not exit with code 0 in time.
func (p *Process) Terminate(within time.Duration) error {
	if !p.Running() {
		return ErrNotRunning
	}
	p.ending = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("cluster: node %d did not end cleanly: %w", p.Index, p.err)
		}
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("cluster: node %d did not end within %v of SIGTERM", p.Index,
			within), p.Kill())
	}
}

// Sync is a fault of every sync of a node's store.
type Sync struct {
	Delay time.Duration // before it returns
	Fail  bool          // it returns EIO
}

// InjectSync slows or fails the syncs of the running node until EndSync or its end. It
// needs strace.
func (p *Process) InjectSync(s Sync) error {
	if !p.Running() {
		return ErrNotRunning
	}
	what := "delay_exit=" + strconv.FormatInt(s.Delay.Microseconds(), 10)
	if s.Fail {
		what = "error=EIO"
	}
	words, err := traced(what)
	if err != nil {
		return err
	}
	p.tracer = exec.Command(words[0], append(words[1:], "-p", strconv.Itoa(p.PID()))...)
	return p.tracer.Start()
}

// traced returns the command line of an strace that injects a fault into every sync.
func traced(inject string) ([]string, error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, fmt.Errorf("%w: strace is missing (Debian: strace)", ErrUnable)
	}
	const calls = "msync,fsync,fdatasync,syncfs"
	return []string{
		"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + calls, "-e", "signal=none",
		"-e", "inject=" + calls + ":" + inject,
	}, nil
}

// slowed returns a command line that delays every sync. Other system calls are not traced, and
// the tracer is the command's child, so that the pid is the command's own.
func slowed(words []string, delay time.Duration) ([]string, error) {
	strace, err := traced("delay_exit=" + strconv.FormatInt(delay.Microseconds(), 10))
	return append(append(strace, "-D", "--seccomp-bpf"), words...), err
}

// EndSync removes the fault of InjectSync.
func (p *Process) EndSync() error {
	p.endTrace()
	return nil
}

func (p *Process) endTrace() {
	if p.tracer == nil {
		return
	}
	_ = p.tracer.Process.Signal(syscall.SIGTERM) // it detaches
	_ = p.tracer.Wait()
	p.tracer = nil
}

// CutPower simulates a power loss of the node: it ends at once, and unsynced data is gone when it
// starts again.
func (p *Process) CutPower() error {
	if p.Disk == nil {
		return fmt.Errorf("%w: the node's directory is on no disk of its own", ErrUnable)
	}
	if !p.Running() {
		return ErrNotRunning
	}
	p.endTrace()
	// The process is frozen first: otherwise a sync could return success although its data
	// never reaches the image.
	if err := p.freeze(); err != nil {
		return err
	}
	if err := p.Disk.Cut(); err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return errors.Join(p.Disk.Unmount(), p.Disk.Mount())
}

// freeze stops the process and waits until all its threads have stopped.
func (p *Process) freeze() error {
	if err := p.Pause(); err != nil {
		return err
	}
	for range 1000 {
		stopped, err := p.stopped()
		if err != nil || stopped {
			return err
		}
		// there is nothing to wait on: the child's waiter is another goroutine's
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("cluster: node %d does not stop", p.Index)
}

// stopped reports whether every thread of the process is in state T.
func (p *Process) stopped() (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		return false, err
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		_, state, _ := strings.Cut(string(text), ") ")
		if !strings.HasPrefix(state, "T") {
			return false, nil
		}
	}
	return len(stats) > 0, nil
}

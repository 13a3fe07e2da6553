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
	"github.com/percolator-go/percolator/internal/localcluster"
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

// Process is one node, with the faults that it can have. Its methods belong to one goroutine at
// a time.
type Process struct {
	*localcluster.Process
	Disk *disk.Disk // contains Dir, if its power can fail; else nil
	// Binary, if not empty, replaces the cluster's binary from the next Start on.
	Binary string

	cluster *Cluster
	certs   string    // folder of its certificates; empty: none
	tracer  *exec.Cmd // strace, while syncs are slowed or failed
}

// ErrRunning and ErrNotRunning report that a node is in the wrong state for the call.
var (
	ErrRunning    = localcluster.ErrRunning
	ErrNotRunning = localcluster.ErrNotRunning
)

// Start starts the node on its directory. It does not wait until it serves.
func (p *Process) Start() error {
	words, env, err := p.command()
	if err != nil {
		return err
	}
	if d := p.cluster.cfg.SyncDelay; d > 0 {
		if words, err = Slowed(words, d); err != nil {
			return err
		}
	}
	if h := p.cluster.hosts; h != nil {
		// Not by `ip netns exec`, which makes a mount namespace too: there, the disks of
		// other nodes would stay mounted. nsenter replaces itself by the program: the pid is
		// the node's.
		words = append([]string{"nsenter", "--net=/run/netns/" + h.Namespace(p.Index)}, words...)
	}
	if p.cluster.cfg.Memory > 0 {
		if words, err = p.confined(words); err != nil {
			return err
		}
	}
	if err := p.Run(words, env); err != nil {
		return err
	}
	return p.cluster.limit(p)
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

// Wipe empties the directory of a node that is not running, so that it starts as a new node and
// joins the others.
func (p *Process) Wipe() error {
	if p.Running() {
		return ErrRunning
	}
	p.Founding = false
	return os.RemoveAll(p.Dir)
}

// Kill sends SIGKILL to the node and waits for its end.
func (p *Process) Kill() error {
	p.endTrace()
	return p.Process.Kill()
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
	tracer := exec.Command(words[0], append(words[1:], "-p", strconv.Itoa(p.PID()))...)
	if err := tracer.Start(); err != nil {
		return err
	}
	p.tracer = tracer
	return nil
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

// Slowed returns a command line that delays every sync. Other system calls are not traced, and
// the tracer is the command's child, so that the pid is the command's own.
func Slowed(words []string, delay time.Duration) ([]string, error) {
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
		return fmt.Errorf("%w: the node's directory is on no disk of its own; set Config.Disks", ErrUnable)
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
		// Poll: only one goroutine can wait for the child, and another one does.
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

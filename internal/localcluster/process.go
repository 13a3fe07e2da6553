//go:build linux

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Process is one node. Its methods belong to one goroutine at a time.
type Process struct {
	Index  int
	Listen string // host:port for clients
	HTTP   string // host:port of /readyz, /metrics and the console
	Dir    string // the node's directory
	// Founding nodes wait for each other before they form the cluster; the others join it.
	Founding bool

	cluster *Cluster
	cmd     *exec.Cmd     // nil: it was never started
	ended   chan struct{} // closed when the process has ended
	err     error         // how the process ended; valid once ended is closed
	ending  bool          // Kill or Terminate was called
}

// ErrRunning and ErrNotRunning report that a node is in the wrong state for the call.
var (
	ErrRunning    = errors.New("localcluster: the node is already running")
	ErrNotRunning = errors.New("localcluster: the node is not running")
)

// Start starts the cluster's binary without TLS on the node's directory. It does not wait until
// the node serves.
func (p *Process) Start() error {
	words := append([]string{p.cluster.cfg.Binary}, p.Args()...)
	return p.Run(append(append(words, "--insecure"), p.cluster.cfg.Args...), nil)
}

// Args returns the node's command line up to its security and additional arguments.
func (p *Process) Args() []string {
	founding := p.cluster.cfg.Nodes
	args := []string{"start", "--dir", p.Dir, "--listen", p.Listen, "--http", p.HTTP}
	if p.Founding && founding > 1 {
		args = append(args, "--expect", strconv.Itoa(founding))
	}
	for _, other := range p.cluster.nodes[:max(founding, 1)] {
		if other != p {
			args = append(args, "--join", other.Listen)
		}
	}
	return args
}

// Run starts the node by a command line, with env added to the environment of the cluster's
// nodes. The command must not start the node as a child: it is the node, or replaces itself by it.
func (p *Process) Run(words, env []string) error {
	if p.Running() {
		return ErrRunning
	}
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
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
	p.cmd, p.ended, p.ending = cmd, ended, false
	go func() { // ends with the process, which Close kills
		p.err = cmd.Wait()
		close(ended)
	}()
	return nil
}

// Log returns the path of the node's log; restarts append to it.
func (p *Process) Log() string {
	return filepath.Join(p.cluster.cfg.Dir, fmt.Sprintf("node-%d.log", p.Index))
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
		return fmt.Errorf("localcluster: node %d has ended unexpectedly, with exit code 0", p.Index)
	}
	return fmt.Errorf("localcluster: node %d has ended unexpectedly: %w", p.Index, p.err)
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
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// Pause suspends the process by SIGSTOP; Resume continues it.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	if !p.Running() {
		return ErrNotRunning
	}
	return p.cmd.Process.Signal(s)
}

// Terminate sends SIGTERM to the node, and fails if it does not exit with code 0 in time. It kills
// a node that has not ended by then.
func (p *Process) Terminate(within time.Duration) error {
	if !p.Running() {
		return ErrNotRunning
	}
	p.ending = true
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("localcluster: node %d did not end cleanly: %w", p.Index, p.err)
		}
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("localcluster: node %d did not end within %v of SIGTERM",
			p.Index, within), p.Kill())
	}
}

// Ready asks the node's /readyz once.
func (p *Process) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := p.Get(ctx, "/readyz")
	return err
}

// Get returns the body that the node serves at a path of its HTTP listener; another status
// than 200 is an error. It keeps no connection, which would count among the node's goroutines.
func (p *Process) Get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("localcluster: %s returned %s", path, resp.Status)
	}
	return body, err
}

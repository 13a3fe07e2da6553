package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/percolator-go/percolator/examples/webindex/index"
	"github.com/percolator-go/percolator/node"
)

// childArgs carries a node's command line to the process that is to be it.
const childArgs = "WEBINDEX_NODE"

// Where the nodes of a cluster listen, unless told otherwise: the ports of the documentation.
const (
	firstPort = 7800
	portStep  = 100
	portsEach = 4 // for clients, nodes, gossip and HTTP
)

const (
	readyTimeout = time.Minute
	readyEvery   = 50 * time.Millisecond
	drainTimeout = 40 * time.Second
)

// child is a node with the index's observers, if this process was started to be one; it
// does not return then.
func child() {
	args, ok := os.LookupEnv(childArgs)
	if !ok {
		return
	}
	_ = os.Unsetenv(childArgs)
	os.Args = append(os.Args[:1], strings.Split(args, "\x1f")...)
	node.Main(index.Register)
}

// nodes are the processes of a cluster on this machine. Its methods belong to one
// goroutine at a time, runs to any.
type nodes struct {
	dir   string
	first int // that begin the cluster together
	all   []*process
}

// process is one node.
type process struct {
	name, listen, http string

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // how; after ended
}

// newNodes chooses addresses for so many nodes that begin a cluster and for those that
// are added later. It starts nothing.
func newNodes(dir string, first, added int, documented bool) (*nodes, error) {
	ports, err := choosePorts(first+added, documented)
	if err != nil {
		return nil, err
	}
	n := &nodes{dir: dir, first: first}
	for i, port := range ports {
		n.all = append(n.all, &process{
			name: fmt.Sprintf("n%d", i+1), listen: local(port), http: local(port + portsEach - 1),
		})
	}
	return n, os.MkdirAll(dir, 0o755)
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// choosePorts finds the first port of each node: the documented ones, or a run of others
// if one of those is taken.
func choosePorts(count int, documented bool) ([]int, error) {
	choose := func(base, step int) ([]int, error) {
		var ports []int
		for i := range count {
			if err := free(base + i*step); err != nil {
				return nil, err
			}
			ports = append(ports, base+i*step)
		}
		return ports, nil
	}
	if documented {
		if ports, err := choose(firstPort, portStep); err == nil {
			return ports, nil
		}
	}
	// Below the range that systems hand out by themselves; begun at different places by
	// processes that run side by side.
	var err error
	for base := 20000 + os.Getpid()%300*40; base < 32700; base += count * portsEach {
		var ports []int
		if ports, err = choose(base, portsEach); err == nil {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no free ports: %w", err)
}

// free reports whether a node could listen from the port on.
func free(port int) error {
	for offset := range portsEach {
		l, err := net.Listen("tcp", local(port+offset))
		if err != nil {
			return err
		}
		_ = l.Close()
	}
	return nil
}

// addrs are the addresses for clients of the nodes that begin the cluster.
func (n *nodes) addrs() (out []string) {
	for _, p := range n.all[:n.first] {
		out = append(out, p.listen)
	}
	return out
}

// begin starts the nodes that begin the cluster and waits until all of them serve.
func (n *nodes) begin(ctx context.Context) error {
	for _, p := range n.all[:n.first] {
		if err := n.start(p); err != nil {
			return err
		}
	}
	for _, p := range n.all[:n.first] {
		if err := n.ready(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// start starts a node, on the directory that it had if it has been running before.
func (n *nodes) start(p *process) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{
		"start", "--insecure", "--dir", filepath.Join(n.dir, p.name), "--listen", p.listen,
		"--http", p.http,
		"--observer-workers", strconv.Itoa(workers), "--log-level", "warn",
	}
	for i, other := range n.all {
		if other == p && i < n.first {
			args = append(args, "--expect", strconv.Itoa(n.first))
		} else if other != p && i < n.first {
			args = append(args, "--join", other.listen)
		}
	}
	log, err := os.OpenFile(n.log(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childArgs+"="+strings.Join(args, "\x1f"))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, attached()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() { // ends with the process, which stop ends
		p.err = cmd.Wait()
		close(ended)
	}()
	return nil
}

// log is where a node writes its log.
func (n *nodes) log(p *process) string { return filepath.Join(n.dir, p.name+".log") }

// ready waits until the node serves.
func (n *nodes) ready(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if err := p.get(ctx, "/readyz", nil); err == nil {
			return nil
		}
		select {
		case <-p.ended:
			text, _ := os.ReadFile(n.log(p))
			return fmt.Errorf("node %s has ended: %w\n%s", p.name, p.err,
				text[max(0, len(text)-2000):])
		case <-ctx.Done():
			return fmt.Errorf("node %s does not get ready: %w", p.name, ctx.Err())
		case <-time.After(readyEvery):
		}
	}
}

// get asks the node's console, and decodes the answer into out, if there is one.
func (p *process) get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.http+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// kill ends the node as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// running reports whether the process is there.
func (p *process) running() bool {
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

// stop ends all nodes, together: by SIGTERM, and who does not end in time by force, which
// is an error.
func (n *nodes) stop() error {
	deadline := time.NewTimer(drainTimeout)
	defer deadline.Stop()
	for _, p := range n.all {
		if p.running() {
			_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended meanwhile
		}
	}
	var errs []error
	for _, p := range n.all {
		if p.cmd == nil {
			continue
		}
		select {
		case <-p.ended:
			if p.err != nil {
				errs = append(errs, fmt.Errorf("node %s: %w", p.name, p.err))
			}
		case <-deadline.C:
			deadline.Reset(0) // for the others too
			errs = append(errs, fmt.Errorf("node %s did not end within %s", p.name, drainTimeout))
			p.kill()
		}
	}
	return errors.Join(errs...)
}

// runs sums up the observers' counters of the nodes that answer: a node that was killed
// has begun to count anew.
func (n *nodes) runs(ctx context.Context) []observerRuns {
	var sum []observerRuns
	at := map[string]int{}
	for _, p := range n.all {
		var status struct{ Observers []counters }
		if err := p.get(ctx, "/api/v1/status", &status); err != nil {
			continue
		}
		for _, o := range status.Observers {
			i, ok := at[o.Name]
			if !ok {
				i = len(sum)
				at[o.Name], sum = i, append(sum, observerRuns{name: o.Name})
			}
			s := &sum[i]
			s.runs, s.commits, s.conflicts = s.runs+o.Runs, s.commits+o.Commits,
				s.conflicts+o.Conflicts
			s.failures, s.parked = s.failures+o.Failures, s.parked+o.Parked
		}
	}
	return sum
}

// counters are one observer's, as /api/v1/status has them.
type counters struct {
	Name                                       string
	Runs, Commits, Conflicts, Failures, Parked uint64
}

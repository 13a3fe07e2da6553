package remoting_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Nodes that are killed or stopped are child processes of the test binary. The test sends them
// commands over a pipe, one per line, and reads one line of answer for each.

// patience is the timeout of events that must happen.
const patience = 30 * time.Second

const childVariable = "PERCOLATOR_REMOTING_CHILD"

// childConfig configures a child node.
type childConfig struct {
	Node, Incarnation uint64
	Listen, Certs     string
	MaxConnections    int
	MaxPending        int
	// Late makes the node listen without receiving until the command "receive".
	Late bool
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		if err := runChild(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// answers is the handler of a node: it answers with the request.
type answers struct{}

func (answers) Request(_ uint64, _ time.Time, req *wire.PeerRequest,
	reply func(*wire.PeerResponse)) {
	if chunk := req.GetSnapshot(); chunk != nil {
		reply(&wire.PeerResponse{
			Body: &wire.PeerResponse_Snapshot{
				Snapshot: &wire.SnapshotAnswer{Next: uint64(len(chunk.GetHeader().GetState()))},
			},
		})
		return
	}
	reply(&wire.PeerResponse{
		Body: &wire.PeerResponse_Honour{
			Honour: &wire.Honoured{Version: req.GetHonour().GetVersion()},
		},
	})
}

func (answers) Raft(*wire.RaftMessage) {}

// runChild runs a node. Commands: know NODE ADDR; ask NODE COUNT CALLERS; large NODE BYTES; flood
// NODE COUNT; down NODE INCARNATION; stats; quit.
func runChild(text string, in io.Reader, out io.Writer) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	var known sync.Map
	rc := remoting.Config{
		Listen: cfg.Listen, MaxConnections: cfg.MaxConnections, MaxPending: cfg.MaxPending,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Resolve: func(node uint64) (string, bool) {
			addr, ok := known.Load(node)
			if !ok {
				return "", false
			}
			return addr.(string), true
		},
	}
	if cfg.Certs != "" {
		files, err := certs.Open(certs.NodeSource(cfg.Certs), nil)
		if err != nil {
			return err
		}
		rc.Files = files
	}
	link, err := remoting.Open(rc)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	if cfg.Late {
		fmt.Fprintln(out, link.Addr())
		lines.Scan()
	}
	p := peer.New(link, peer.Self{ClusterID: "c", NodeID: cfg.Node, Incarnation: cfg.Incarnation},
		answers{}, peer.Config{})
	fmt.Fprintln(out, link.Addr())
	for lines.Scan() {
		var command string
		var a, b uint64
		var addr string
		if strings.HasPrefix(lines.Text(), "know") {
			_, _ = fmt.Sscan(lines.Text(), &command, &a, &addr) // the test writes valid commands
			known.Store(a, addr)
			fmt.Fprintln(out, "ok")
			continue
		}
		var callers int
		_, _ = fmt.Sscan(lines.Text(), &command, &a, &b, &callers) // few commands have all of them
		switch command {
		case "ask":
			fmt.Fprintln(out, askMany(p, a, int(b), callers))
		case "large":
			fmt.Fprintln(out, askLarge(p, a, int(b)))
		case "flood":
			fmt.Fprintln(out, flood(p, a, int(b)))
		case "down":
			p.Down(a, b)
			fmt.Fprintln(out, "ok")
		case "stats":
			all, err := json.Marshal(link.Stats())
			if err != nil {
				return err
			}
			fmt.Fprintln(out, string(all))
		case "quit":
			begin := time.Now()
			if err := p.Close(); err != nil {
				return err
			}
			fmt.Fprintln(out, time.Since(begin))
			return nil
		}
	}
	return p.Close()
}

// askMany sends count requests from n callers and reports the duration, or the error.
func askMany(p *peer.Peers, node uint64, count, callers int) string {
	begin := time.Now()
	var wg sync.WaitGroup
	failed := make(chan error, callers)
	for c := range callers {
		wg.Go(func() {
			for i := c; i < count; i += callers {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				r, err := p.Call(ctx, node,
					&wire.PeerRequest{
						Body: &wire.PeerRequest_Honour{
							Honour: &wire.HonourCatalogue{Version: uint64(i)},
						},
					})
				cancel()
				if err == nil && r.GetHonour().GetVersion() != uint64(i) {
					err = fmt.Errorf("answer %v to %d", r, i)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return "error " + err.Error()
	default:
		return "ok " + time.Since(begin).String()
	}
}

// askLarge sends a request of n bytes.
func askLarge(p *peer.Peers, node uint64, size int) string {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	chunk := &wire.SnapshotChunk{Header: &wire.SnapshotHeader{State: make([]byte, size)}}
	r, err := p.Call(ctx, node, &wire.PeerRequest{
		Body: &wire.PeerRequest_Snapshot{Snapshot: chunk},
	})
	switch {
	case err != nil:
		return "error " + err.Error()
	case r.GetSnapshot().GetNext() != uint64(size):
		return fmt.Sprint("error ", r)
	}
	return "ok " + time.Since(begin).String()
}

// flood sends count requests of 1 MiB without waiting for answers and returns the number accepted.
func flood(p *peer.Peers, node uint64, count int) int {
	taken := 0
	for range count {
		chunk := &wire.SnapshotChunk{Header: &wire.SnapshotHeader{State: make([]byte, 1<<20)}}
		answer := make(chan error, 1)
		p.Tell(node, time.Now().Add(patience), &wire.PeerRequest{Body: &wire.PeerRequest_Snapshot{Snapshot: chunk}},
			func(_ *wire.PeerResponse, err error) { answer <- err })
		select {
		case err := <-answer:
			if errors.Is(err, txn.ErrOverloaded) {
				continue
			}
		default:
		}
		taken++
	}
	return taken
}

// child is a node's process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr *syncBuffer
	addr   string
	ended  bool
}

// syncBuffer is written by a process and read by a test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func start(t *testing.T, cfg childConfig) *child {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(os.Args[0]), stderr: &syncBuffer{}}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	c.cmd.Stderr = c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		if !c.ended {
			c.kill()
		}
		if t.Failed() {
			t.Logf("node %d said:\n%s", cfg.Node, c.stderr)
		}
	})
	c.addr = c.read()
	return c
}

// read returns the next line; the test fails if the process has ended.
func (c *child) read() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the process has ended: %v\n%s", c.out.Err(), c.stderr)
	}
	return c.out.Text()
}

// tell sends a command and returns the answer.
func (c *child) tell(format string, args ...any) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatalf("%v\n%s", err, c.stderr)
	}
	return c.read()
}

// knows introduces nodes by number.
func (c *child) knows(node uint64, addr string) { c.t.Helper(); c.tell("know %d %s", node, addr) }

// asks expects an answer to a request. A request that found no connection in time is repeated: it
// was not sent.
func (c *child) asks(node uint64) {
	c.t.Helper()
	for begin := time.Now(); ; {
		got := c.tell("ask %d 1 1", node)
		if strings.HasPrefix(got, "ok") {
			return
		}
		if !strings.Contains(got, "request not sent") || time.Since(begin) > patience {
			c.t.Errorf("a proper node is not served: %s", got)
			return
		}
	}
}

// asksAgain repeats a request to a node that was away until it answers.
func (c *child) asksAgain(node uint64) {
	c.t.Helper()
	for begin := time.Now(); ; {
		got := c.tell("ask %d 1 1", node)
		if strings.HasPrefix(got, "ok") {
			return
		}
		if time.Since(begin) > patience {
			c.t.Fatalf("the node is not found again: %s", got)
		}
	}
}

func (c *child) stats() (st remoting.Stats) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.tell("stats")), &st); err != nil {
		c.t.Fatal(err)
	}
	return st
}

// kill ends the process as kill -9 does.
func (c *child) kill() {
	c.ended = true
	_ = c.cmd.Process.Kill() // it may have ended by itself
	_ = c.cmd.Wait()
}

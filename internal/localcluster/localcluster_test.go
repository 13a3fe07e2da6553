//go:build linux

package localcluster_test

import (
	"errors"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/localcluster"
)

// TestProcess runs other programs as nodes and ends each in a different way.
func TestProcess(t *testing.T) {
	c, err := localcluster.New(localcluster.Config{Nodes: 3, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	run := func(p *localcluster.Process, words ...string) {
		t.Helper()
		if err := p.Run(words, nil); err != nil {
			t.Fatal(err)
		}
	}
	killed, failing, deaf := c.Node(0), c.Node(1), c.Node(2)

	run(killed, "sleep", "60")
	if err := killed.Run([]string{"true"}, nil); !errors.Is(err, localcluster.ErrRunning) {
		t.Errorf("Run of a running node returned %v, not ErrRunning", err)
	}
	if err := errors.Join(killed.Pause(), killed.Resume(), killed.Kill(), killed.Died()); err != nil {
		t.Error(err)
	}
	if err := killed.Pause(); !errors.Is(err, localcluster.ErrNotRunning) {
		t.Errorf("Pause of a killed node returned %v, not ErrNotRunning", err)
	}

	run(failing, "false")
	if err := c.Ready(t.Context()); err != nil { // until it has ended
		t.Error(err)
	}
	if failing.Running() || failing.Died() == nil {
		t.Error("Died does not report a node that exited with code 1")
	}

	run(deaf, "sleep", "60")
	if err := errors.Join(deaf.Pause(), deaf.Terminate(time.Millisecond)); err == nil {
		t.Error("Terminate does not report a node that ignored SIGTERM")
	}
	if deaf.Running() {
		t.Error("Terminate left a node running that ignored SIGTERM")
	}
}

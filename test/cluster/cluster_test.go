package cluster_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.Main(nil)
	os.Exit(m.Run())
}

var cell = percolator.Column{Table: "t", Name: "c"}

// TestFaultsOfOneNode: each fault of the harness has its effect on a real node, until it ends.
func TestFaultsOfOneNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cluster.New(cluster.Config{
		Nodes: 1, Spare: 1, Dir: t.TempDir(), Hosts: true, Disks: 2 << 30, CPUs: 1.5,
	})
	if errors.Is(err, cluster.ErrUnable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("start", c.Start(ctx))
	db, err := c.Dial(ctx)
	must("dial", err)
	defer func() { _ = db.Close() }()
	must("create the table", db.CreateTable(ctx, percolator.TableSpec{Name: cell.Table}))
	put := func(within time.Duration, v string) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("r", cell, []byte(v))
			return nil
		})
	}
	p := c.Node(0)
	must("write", put(10*time.Second, "1"))

	must("pause", p.Pause())
	if put(300*time.Millisecond, "paused") == nil {
		t.Error("a paused node answers")
	}
	must("resume", p.Resume())
	must("write after a pause", put(10*time.Second, "2"))

	must("slow sync", p.InjectSync(cluster.Sync{Delay: 700 * time.Millisecond}))
	// until strace has attached
	for began := time.Now(); time.Since(began) < 600*time.Millisecond; {
		must("slow sync", ctx.Err())
		began = time.Now()
		must("write with slow syncs", put(20*time.Second, "slow"))
	}
	must("end it", p.EndSync())
	must("write after slow syncs", put(10*time.Second, "3"))

	must("power loss", p.CutPower())
	must("start again", p.Start())
	must("ready", c.Ready(ctx))
	must("write after a power loss", put(20*time.Second, "4"))
	must("terminate", p.Terminate(30*time.Second))
	if !errors.Is(p.Kill(), cluster.ErrNotRunning) {
		t.Error("a node that has ended can be killed")
	}
}

// TestCut: a cut drops packets in its direction only, until it is healed.
func TestCut(t *testing.T) {
	h, err := cluster.NewHosts(3)
	if errors.Is(err, cluster.ErrUnable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	// No process listens: a refused connection has passed both directions, a timeout has not.
	reaches := func(from, to int) bool {
		line := "echo > /dev/tcp/" + h.Addr(to) + "/7800"
		out, _ := exec.Command("ip", "netns", "exec", h.Namespace(from), "timeout", "1", "bash",
			"-c", line).CombinedOutput()
		return strings.Contains(string(out), "refused")
	}
	if !reaches(0, 1) || !reaches(2, 1) {
		t.Fatal("the hosts do not reach each other")
	}
	if err := h.Cut(1, 0); err != nil {
		t.Fatal(err)
	}
	if reaches(0, 1) {
		t.Error("answers from 1 to 0 are not dropped")
	}
	if !reaches(0, 2) || !reaches(2, 1) {
		t.Error("more was cut than asked for")
	}
	if err := h.Heal(); err != nil {
		t.Fatal(err)
	}
	if !reaches(0, 1) {
		t.Error("the cut was not healed")
	}
	if err := h.Split(0); err != nil {
		t.Fatal(err)
	}
	if reaches(0, 1) || reaches(2, 0) || !reaches(1, 2) {
		t.Error("the split differs from the request")
	}
}

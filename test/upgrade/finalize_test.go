package upgrade

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/test/cluster"
)

// TestFinalizeIsKilled: the node that finalises an upgrade, or all nodes, are killed with -9 right
// after the request, when the first directory refuses earlier builds, and when the last one does.
// In each case the cluster restarts with the later build, and the same command finishes.
func TestFinalizeIsKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	early := earlier(ctx, t)
	for _, killed := range []struct {
		name   string
		raised int  // number of raised directories at which the nodes are killed
		all    bool // all nodes are killed, not only the one that finalises
	}{
		{"the node at once", 0, false}, {"all at the first directory", 1, true},
		{"the node at the first directory", 1, false}, {"all at the last directory", 3, true},
	} {
		t.Run(killed.name, func(t *testing.T) {
			u := &upgrade{t: t, ctx: ctx, rng: rand.New(rand.NewPCG(1, 0)), early: early}
			u.found()
			// By the node that leads meta, as most calls to it are.
			i := u.leadsMeta()
			asked, ended := u.ask(i)
			<-asked
			// Without a pause: the whole takes some milliseconds.
			for u.raised() < killed.raised && ctx.Err() == nil {
				runtime.Gosched()
			}
			for _, p := range u.Nodes() {
				if killed.all || p.Index == i {
					must(t, p.Kill())
				}
			}
			err := <-ended
			t.Logf("killed when %d directories are of the new version; the call: %v", u.raised(), err)
			for _, p := range u.Nodes() {
				if killed.all || p.Index == i {
					must(t, p.Start())
				}
			}
			u.sound("nodes were killed while the upgrade was finalised")
			u.until("it is finalised in the end", func() bool {
				call, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				r, err := handle.Client(u.db).Admin().FinalizeUpgrade(call, &pb.FinalizeUpgradeRequest{})
				return err == nil && r.Agreed.GetActive() == uint32(version.Known().Newest)
			})
			u.until("every directory says so", func() bool { return u.raised() == 3 })
			for _, p := range u.Nodes() {
				u.until("what is new is used", func() bool { return u.backUp(p.Listen) == nil })
			}
			u.refused(i)
		})
	}
}

// found creates a cluster of the earlier build and upgrades all of its nodes to this one.
func (u *upgrade) found() {
	u.t.Helper()
	var err error
	u.Cluster, err = cluster.New(cluster.Config{Nodes: 3, Dir: u.t.TempDir()})
	must(u.t, err)
	u.t.Cleanup(func() {
		if err := u.Close(); err != nil {
			u.t.Error(err)
		}
	})
	for _, p := range u.Nodes() {
		p.Binary = u.early
	}
	must(u.t, u.Start(u.ctx))
	u.db, err = u.Dial(u.ctx)
	must(u.t, err)
	u.t.Cleanup(func() { _ = u.db.Close() })
	u.sound("the cluster has begun")
	for _, p := range u.Nodes() {
		must(u.t, p.Kill())
		p.Binary = ""
	}
	for _, p := range u.Nodes() {
		must(u.t, p.Start())
	}
	u.sound("all nodes are upgraded")
	u.unused("all nodes are upgraded")
}

// leadsMeta waits for a leader of the meta tablet and returns its process.
func (u *upgrade) leadsMeta() (index int) {
	u.t.Helper()
	u.until("meta is led", func() bool {
		for _, n := range u.status().Nodes {
			for _, p := range u.Nodes() {
				if n.Node.LeadsMeta && n.Node.Listen == p.Listen {
					index = p.Index
					return true
				}
			}
		}
		return false
	})
	return index
}

// ask requests the finalisation from a node. asked is closed just before; ended receives the
// call's error.
func (u *upgrade) ask(i int) (asked chan struct{}, ended chan error) {
	u.t.Helper()
	asked, ended = make(chan struct{}), make(chan error, 1)
	db := u.dial(u.Node(i).Listen)
	go func() {
		ctx, cancel := context.WithTimeout(u.ctx, 5*time.Second)
		defer cancel()
		close(asked)
		_, err := handle.Client(db).Admin().FinalizeUpgrade(ctx, &pb.FinalizeUpgradeRequest{})
		ended <- err
	}()
	return asked, ended
}

// raisedLine is the text in the VERSION file of a directory of the new version.
func raisedLine() string { return fmt.Sprintf("\nformat %d\n", version.Known().Newest) }

// raised returns the number of directories of the new version.
func (u *upgrade) raised() (n int) {
	for _, p := range u.Nodes() {
		text, err := os.ReadFile(filepath.Join(p.Dir, "VERSION"))
		if err == nil && strings.Contains(string(text), raisedLine()) {
			n++
		}
	}
	return n
}

package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
)

// The builds of these tests, by supported versions.
var (
	buildOld   = version.Range{Oldest: 2, Newest: 2}
	buildNew   = version.Range{Oldest: 2, Newest: 3}
	buildLater = version.Range{Oldest: 3, Newest: 8} // upgradable from buildNew
	buildFar   = version.Range{Oldest: 7, Newest: 8} // not upgradable from it
)

// upgrader opens nodes of any build that join through real listeners and gossip.
type upgrader struct {
	*joiner
	ctx  context.Context
	dirs string
	up   map[string]*node.Node // by name
	// register registers the observers of the nodes opened from now on.
	register func(*percolator.Registry)
}

func (u *upgrader) open(name string, build version.Range) error {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = u.dir(name), "127.0.0.1:0", "", true
	cfg.Replicas, cfg.Observers = 1, u.register
	for _, n := range u.up {
		cfg.Join = append(cfg.Join, n.Addr())
	}
	n, err := nodeparts.Open[node.Node](u.ctx, cfg, nodeparts.Parts{
		Versions: build,
		Link:     func(self peer.Self) (peer.Link, error) { return u.network.Link(self.NodeID), nil },
	})
	if err == nil {
		u.up[name] = n
	}
	return err
}

func (u *upgrader) dir(name string) string { return filepath.Join(u.dirs, name) }

// replace restarts a node with another build.
func (u *upgrader) replace(name string, build version.Range) {
	u.t.Helper()
	if n := u.up[name]; n != nil {
		delete(u.up, name)
		u.close(n)
	}
	if err := u.open(name, build); err != nil {
		u.t.Fatalf("%s with a build that knows %s: %v", name, build, err)
	}
	s := u.up[name].Status()
	awaitNodes(u.ctx, u.t, u.up[name], s.NodeId, s.Incarnation)
}

// refused requires that a node is refused with the text.
func (u *upgrader) refused(name string, build version.Range, text string) {
	u.t.Helper()
	err := u.open(name, build)
	if err == nil {
		u.t.Fatalf("WRONG-VERSION-LET-IN: %s with a build that knows %s", name, build)
	}
	var dir *store.VersionError
	if !errors.Is(err, version.ErrIncompatible) && !errors.As(err, &dir) ||
		!strings.Contains(err.Error(), text) {
		u.t.Errorf("%s with a build that knows %s: %v, want %q", name, build, err, text)
	}
}

// finalize finalises the upgrade through a node.
func (u *upgrader) finalize(name string) (*pb.FinalizeUpgradeResponse, error) {
	ctx, cancel := context.WithTimeout(u.ctx, 20*time.Second)
	defer cancel()
	return handle.Client(u.up[name].DB()).Admin().FinalizeUpgrade(ctx, &pb.FinalizeUpgradeRequest{})
}

// saved returns the version recorded in a node's directory.
func (u *upgrader) saved(name string) string {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.dir(name), "VERSION"))
	if err != nil {
		u.t.Fatal(err)
	}
	return strings.Split(string(text), "\n")[1]
}

// uses reports whether the cluster, through the node, accepts features of version 3.
func (u *upgrader) uses(name string) bool {
	u.t.Helper()
	c := handle.Client(u.up[name].DB())
	l, err := backup.Open(u.ctx, u.t.TempDir())
	if err != nil {
		u.t.Fatal(err)
	}
	_, made := backup.Create(u.ctx, c, l, backup.CreateOptions{Tables: []string{"t"}})
	_, begun := c.Admin().RestoreTable(u.ctx, &pb.RestoreTableRequest{
		Name: "restored", Mark: &pb.RestoreMark{Source: "a test", At: 1},
	})
	var at percolator.Timestamp
	if err := u.up[name].DB().Transact(u.ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("r", percolator.Column{Table: "t", Name: "c"}, nil)
		return nil
	}, percolator.CommittedAt(&at)); err != nil {
		u.t.Fatal(err)
	}
	_, waited := u.up[name].DB().WaitFor(u.ctx, at)
	for _, err := range []error{made, begun, waited} {
		if err != nil && !strings.Contains(err.Error(), "needs the cluster to be at version 3, and it is at 2") {
			u.t.Fatalf("by %s: %v", name, err)
		}
	}
	if (made == nil) != (begun == nil) || (made == nil) != (waited == nil) {
		u.t.Errorf("by %s: a backup: %v; a restore: %v; waiting: %v", name, made, begun, waited)
	}
	return made == nil || begun == nil || waited == nil
}

// newUpgrader returns a cluster of two nodes of the old build, with a table.
func newUpgrader(t *testing.T) *upgrader {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	u := &upgrader{
		joiner: &joiner{t, memlink.NewNetwork()}, ctx: ctx, dirs: t.TempDir(), up: map[string]*node.Node{},
	}
	t.Cleanup(func() {
		for _, n := range u.up {
			u.close(n)
		}
	})
	u.replace("a", buildOld)
	u.replace("b", buildOld)
	if err := u.up["a"].DB().CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUpgrade: two nodes are upgraded, rolled back, and upgraded again. No new feature is used and
// no directory changes until the upgrade is finalised, which requires all nodes; then earlier
// builds are refused. Builds that are too new are refused at all times. A refused node has changed
// nothing.
func TestUpgrade(t *testing.T) {
	u := newUpgrader(t)
	unused := func(when string) {
		t.Helper()
		for name := range u.up {
			if u.uses(name) {
				t.Errorf("FEATURE-BEFORE-FINAL: %s, by %s", when, name)
			}
			if got := u.saved(name); got != "format 2" {
				t.Errorf("FEATURE-BEFORE-FINAL: %s, the directory of %s is of %s", when, name, got)
			}
		}
	}
	notFinal := func(when, through, text string) {
		t.Helper()
		r, err := u.finalize(through)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("FINALISED-WITHOUT-ALL: %s: %v, %v, want %q", when, r, err, text)
		}
	}
	u.refused("far", buildFar, "the cluster is at version 2, and the build supports 7 to 8")
	u.replace("b", buildNew)
	unused("one of two nodes is upgraded")
	notFinal("one of two nodes is upgraded", "b", "not every node supports version 3")
	u.replace("a", buildNew)
	unused("both nodes are upgraded")
	u.replace("b", buildOld) // rolled back
	unused("one is rolled back")
	id := u.up["b"].Status().NodeId
	u.close(u.up["b"])
	delete(u.up, "b")
	notFinal("one is away", "a", "not every node supports version 3")
	u.replace("b", buildNew)
	if got := u.up["b"].Status().NodeId; got != id {
		t.Errorf("node %d came back as %d", id, got)
	}
	unused("both are upgraded again")

	if r, err := u.finalize("b"); err != nil || !r.Changed || r.Agreed.Active != 3 {
		t.Fatalf("finalised: %v, %v", r, err)
	}
	for name := range u.up {
		if !u.uses(name) || u.saved(name) != "format 3" {
			t.Errorf("after it was finalised, %s uses nothing new, or its directory is of %s", name, u.saved(name))
		}
	}
	if r, err := u.finalize("a"); err != nil || r.Changed {
		t.Errorf("finalised again: %v, %v", r, err)
	}
	u.refusals()
	u.replace("c", buildLater) // the next upgrade
	notFinal("the next upgrade", "c", "not every node supports version 8")
}

// TestFinalizeCutShort: a finalisation interrupted after meta has recorded that earlier builds are
// refused, and before any node is notified, leaves a cluster that restarts with its build, uses no
// new feature and refuses the earlier build; repeating the command finishes it. One interrupted
// when only notifications were left is already finished.
func TestFinalizeCutShort(t *testing.T) {
	u := newUpgrader(t)
	ctx := u.ctx
	u.replace("a", buildNew)
	u.replace("b", buildNew)
	if err := u.up["a"].Agree(ctx, version.Agreed{Minimum: 3}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "a"} {
		u.replace(name, buildNew)
		if u.uses(name) {
			t.Errorf("FEATURE-BEFORE-FINAL: cut short, by %s", name)
		}
		if got := u.saved(name); got != "format 3" {
			t.Errorf("WRONG-VERSION-LET-IN: cut short, the directory of %s is of %s", name, got)
		}
	}
	u.refused("fresh", buildOld, "the cluster is at version 3, and the build supports 2")
	if r, err := u.finalize("b"); err != nil || !r.Changed || r.Agreed.Active != 3 {
		t.Fatalf("finalised in the end: %v, %v", r, err)
	}
	for name := range u.up {
		if !u.uses(name) {
			t.Errorf("after it was finalised, %s uses nothing new", name)
		}
	}
}

// refusals tries the builds that are refused after finalisation, and checks that they leave
// nothing.
func (u *upgrader) refusals() {
	u.refused("fresh", buildOld, "the cluster is at version 3, and the build supports 2: start a build that supports 3")
	u.refused("far", buildFar, "the cluster is at version 3, and the build supports 7 to 8")
	if got := u.saved("fresh"); got != "format 2" {
		u.t.Errorf("the directory of a node that was refused is of %s", got)
	}
	st, err := store.Open(store.Options{Dir: u.dir("fresh"), MinFreeBytes: 1})
	if err != nil {
		u.t.Fatal(err)
	}
	if self, err := join.OpenSelf(st); err != nil || !self.Identity().Fresh() {
		u.t.Errorf("a node that was refused is %+v, %v", self.Identity(), err)
	}
	if err := st.Close(); err != nil {
		u.t.Error(err)
	}
	// A node of the cluster: its directory refuses, and if the directory does not have the version,
	// the others do.
	u.close(u.up["b"])
	delete(u.up, "b")
	u.refused("b", buildOld, "has disk version 3, and this build supports 2; nothing in it was changed")
	version := filepath.Join(u.dir("b"), "VERSION")
	text, err := os.ReadFile(version)
	if err == nil {
		err = os.WriteFile(version, []byte(strings.Replace(string(text), "format 3", "format 2", 1)), 0o600)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	u.refused("b", buildOld, "the cluster is at version 3, and the build supports 2")
	u.replace("b", buildNew) // by its directory, it was away when the version was raised
	if got := u.saved("b"); got != "format 3" {
		u.t.Errorf("the directory of a node that was away is of %s", got)
	}
	r, err := handle.Client(u.up["a"].DB()).Admin().Nodes(u.ctx, &pb.NodesRequest{})
	if err != nil || len(r.Nodes) != 2 {
		u.t.Errorf("the nodes are %v, %v", r.GetNodes(), err)
	}
}

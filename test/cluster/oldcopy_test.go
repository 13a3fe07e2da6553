package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/health"
)

// TestOldCopyIsMadeAnew: the directory of a node is copied while it runs. The node continues, is
// killed, and returns with the copy. It reports that within seconds, its replicas are recreated,
// nothing acknowledged is lost, and finally all replicas are equal.
func TestOldCopyIsMadeAnew(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and kills them")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	u := &oldCopy{catchUp: &catchUp{t: t, ctx: ctx}}
	u.open()
	u.tablet()
	u.comes("three voters of every tablet", u.equal)
	u.put(100)
	node, old := u.c.Node(2), filepath.Join(t.TempDir(), "old")
	u.must("copy", os.CopyFS(old, os.DirFS(node.Dir)))
	u.put(200)
	u.must("kill", node.Kill())
	u.put(10)
	u.must("remove", os.RemoveAll(node.Dir))
	u.must("put the copy there", os.Rename(old, node.Dir))
	began := time.Now()
	u.must("start", node.Start())
	u.comes("a finding of "+health.OldCopy, u.found)
	if took := time.Since(began); took > 30*time.Second { // including the start
		t.Errorf("the finding came after %v", took)
	}
	u.comes("equal replicas", u.equal)
	t.Logf("all replicas are equal %v after the start", time.Since(began))
	u.put(10)
	snap, err := u.db.Snapshot(ctx)
	u.must("begin to read", err)
	defer func() { u.must("end reading", snap.Close()) }()
	for i := range u.rows {
		_, ok, err := snap.Get(ctx, fmt.Sprintf("r%05d", i), cell)
		u.must("read", err)
		if !ok {
			t.Errorf("row %d, which was acknowledged, is gone", i)
		}
	}
}

// oldCopy is a cluster of three with small rows.
type oldCopy struct {
	*catchUp
	rows int
	last string // the last state seen
}

// put writes n rows, one by one.
func (u *oldCopy) put(n int) {
	u.t.Helper()
	for range n {
		u.must("write", u.db.Transact(u.ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("r%05d", u.rows), cell, []byte("v"))
			return nil
		}))
		u.rows++
	}
}

// comes waits until ok holds.
func (u *oldCopy) comes(what string, ok func() bool) {
	u.t.Helper()
	for !ok() {
		select {
		case <-u.ctx.Done():
			u.t.Fatalf("not seen: %s; last: %s\n%s", what, u.last, tail(u.c.Node(2).Log()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func tail(file string) string {
	text, _ := os.ReadFile(file)
	return string(text[max(0, len(text)-8<<10):])
}

// status returns the cluster's status.
func (u *oldCopy) status() *pb.ClusterStatusResponse {
	r, err := handle.Client(u.db).Admin().ClusterStatus(u.ctx, &pb.ClusterStatusRequest{})
	u.last = fmt.Sprint(r.GetFindings(), err)
	return r
}

// found reports whether it lists a node with an old copy.
func (u *oldCopy) found() bool {
	return slices.ContainsFunc(u.status().GetFindings(), func(f *pb.Finding) bool {
		return f.Kind == health.OldCopy
	})
}

// equal reports whether the tablets with leaders, two at least, have three voters with the same
// rows.
func (u *oldCopy) equal() bool {
	led := 0
	for _, n := range u.status().GetNodes() {
		for _, t := range n.GetStatus().GetTablets() {
			if !t.Leader {
				continue
			}
			led++
			v, err := handle.Client(u.db).Admin().VerifyTablet(u.ctx,
				&pb.VerifyTabletRequest{TabletId: t.Tablet.TabletId})
			u.last = fmt.Sprint(t.Tablet, v, err)
			silent := func(c *pb.ReplicaChecksum) bool { return c.Error != "" }
			if err != nil || !v.Equal || len(v.Replicas) != 3 || voters(t.Tablet) != 3 ||
				slices.ContainsFunc(v.Replicas, silent) {
				return false
			}
		}
	}
	return led >= 2
}

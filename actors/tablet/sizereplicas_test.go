package tablet

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// sameSize waits until the replicas on the nodes have applied the same entries and all report the
// same size, within a tenth of the bytes written.
func (g *cluster) sameSize(tablet, written uint64, nodes ...uint64) {
	g.tb.Helper()
	g.wait(fmt.Sprintf("tablet %d takes about %d bytes on nodes %v", tablet, written, nodes),
		func() bool {
			said := map[string]bool{} // query all: the leader measures when queried
			for _, id := range nodes {
				s := g.status(id, tablet)
				said[fmt.Sprint(s.GetAppliedIndex(), s.GetSizeBytes())] = true
				if n := s.GetSizeBytes(); n < written-written/10 || n > written+written/10 {
					said["far off"] = true
				}
			}
			return len(said) == 1 && !said["far off"]
		})
}

// TestReplicasAgreeOnSize: the size that a replica reports depends on the tablet's content, not on
// how the replica received it: by entries, by a log from its beginning, by a split, or before a
// restart.
func TestReplicasAgreeOnSize(t *testing.T) {
	g := newGroup(t, 4, 3, testTick)
	const rows, size = 100, 10_000
	for i := range rows {
		g.write(groupTablet, fmt.Sprintf("%03d", i), strings.Repeat("v", size))
	}
	g.sameSize(groupTablet, rows*size, 1, 2, 3)

	g.nodes[3].stop(groupTablet)
	g.nodes[3].spawn(groupTablet)
	g.sameSize(groupTablet, rows*size, 1, 2, 3)
	g.change(groupTablet, step(pb.ReplicaChange_KIND_ADD_LEARNER, 4))
	g.sameSize(groupTablet, rows*size, 1, 2, 3, 4)

	// At a quarter: each side is assumed to be half, until the leader has measured.
	g.do(groupTablet, splitOf(fmt.Sprintf("%03d", rows/4), 3))
	g.sameSize(groupTablet, rows*size/4, 1, 2, 3, 4)
	g.sameSize(3, rows*size*3/4, 1, 2, 3, 4)
}

// TestSizeOfOldStores: replicas whose stores have counted nothing, and a leader that only
// estimates, agree once it has measured.
func TestSizeOfOldStores(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	const rows, size = 50, 10_000
	for i := range rows {
		g.write(groupTablet, fmt.Sprintf("%03d", i), strings.Repeat("v", size))
	}
	g.even(groupTablet, 1, 2, 3)
	for id, m := range g.nodes {
		m.stop(groupTablet)
		snap := m.store.Snap()
		a, ok, err := snap.Applied(groupTablet)
		snap.Close()
		if !ok || err != nil {
			t.Fatal(err)
		}
		a.Bytes, a.Rough = id*1_000_000, true
		b := &store.Batch{}
		b.PutApplied(groupTablet, a)
		if err := m.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range g.nodes {
		m.spawn(groupTablet)
	}
	g.sameSize(groupTablet, rows*size, 1, 2, 3)
}

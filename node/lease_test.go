package node_test

import (
	"context"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// TestReadsUnderLeases: the leaders of three nodes serve reads under leases, after leases=off by asking
// their voters, and under leases again after leases=on.
func TestReadsUnderLeases(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	r := newRig(t, 3, func(_ int, c *node.Config) { c.HTTP = "127.0.0.1:0" })
	db := r.nodes[0].DB()
	column := percolator.Column{Table: "t", Name: "c"}
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	awaitTrue(ctx, t, "three voters of all tablets", func() bool { return threeVoters(r.nodes) })
	// counts returns how many batches of reads the nodes have served under leases and by asking
	// their voters.
	counts := func() (leased, asked float64) {
		for _, n := range r.nodes {
			s := series(ctx, t, n)
			leased += s["percolator_lease_reads_total"]
			asked += s["percolator_lease_quorum_reads_total"]
		}
		return leased, asked
	}
	read := func() (leased, asked float64) {
		was, before := counts()
		for range 20 {
			err := db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
				_, _, err := s.Get(ctx, "row", column)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		leased, asked = counts()
		return leased - was, asked - before
	}
	awaitTrue(ctx, t, "reads under leases", func() bool {
		leased, asked := read()
		return leased >= 20 && asked == 0
	})
	set := func(leases bool) {
		if _, err := db.Admin().SetPolicy(ctx, func(p *percolator.Policy) { p.Leases = leases }); err != nil {
			t.Fatal(err)
		}
	}
	set(false)
	awaitTrue(ctx, t, "reads without leases", func() bool {
		leased, asked := read()
		return leased == 0 && asked >= 20
	})
	set(true)
	awaitTrue(ctx, t, "reads under leases again", func() bool {
		leased, asked := read()
		return leased >= 20 && asked == 0
	})
}

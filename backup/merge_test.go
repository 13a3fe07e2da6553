package backup_test

import (
	"fmt"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestChainAcrossMerges: tablets merge between the backups of a chain, with writes and deletions on
// both sides of each merge. Restores are exact at timestamps before and after each.
func TestChainAcrossMerges(t *testing.T) {
	from := start(t, 100)
	db := from.DB()
	l := open(t, t.TempDir())
	type state struct {
		at   percolator.Timestamp
		want contents
	}
	var states []state
	note := func(at percolator.Timestamp) {
		states = append(states, state{at, contentsAt(t, db, "bank", at)})
	}
	write := func(round string) {
		for _, i := range []int{5, 29, 30, 35, 59, 60, 65} { // in each tablet and at its ends
			set(t, db, "bank", fmt.Sprintf("row%06d", i), round)
		}
		set(t, db, "bank", fmt.Sprintf("row0000%s", round), "")
		note(set(t, db, "bank", "row000061", "last of "+round))
	}
	write("40")
	states = nil // from before the full backup
	note(percolator.Timestamp(create(t, db, l, backup.CreateOptions{}).At))
	for _, merge := range []struct{ at, before, after string }{
		{"row000060", "41", "62"},
		{"row000030", "20", "42"},
	} {
		write(merge.before)
		r, err := handle.Client(db).Admin().MergeTablets(t.Context(), &pb.MergeTabletsRequest{
			Table: "bank", Row: []byte(merge.at),
		})
		must(t, err)
		if string(r.GetTablet().GetStartRow()) == merge.at {
			t.Fatalf("not merged: %v", r)
		}
		write(merge.after)
		m := create(t, db, l, backup.CreateOptions{Incremental: true})
		if m.Parent == "" {
			t.Fatalf("no increment: %+v", m)
		}
		note(percolator.Timestamp(m.At))
	}
	to := percolatortest.Start(t, nil)
	for i, s := range states {
		name := fmt.Sprintf("bank%d", i)
		_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
			At: uint64(s.at), Tables: map[string]string{"bank": name},
		})
		must(t, err)
		equal(t, fmt.Sprintf("state %d", i), contentsNow(t, to.DB(), name), s.want)
	}
}

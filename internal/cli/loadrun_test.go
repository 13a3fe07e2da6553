package cli

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// The first batch fails after a checkpoint was due: the progress file counts no line behind it,
// because a resumed load would skip the first one. (In a bubble: the first batch waits until all
// other goroutines are idle.)
func TestProgressHasNoGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulk(t)
		b.cluster.AddTable("u")
		b.file("in", lines(400))
		b.inject = func(req *pb.TabletRequest) txntest.Fault {
			if w := req.GetOnePhase(); w == nil || string(w.Writes[0].Cell.Row) != "a00000" {
				return txntest.Fault{}
			}
			return txntest.Fault{
				Before: func(ctx context.Context) {
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
				},
				Answer: &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: "not the first one"},
			}
		}
		b.must(shell.ExitFailed, "not the first one", "load", "u", "@in", "--batch", "10", "--workers", "2",
			"--checkpoint", "-1s")
		var state struct{ Line, Offset int64 }
		if err := json.Unmarshal([]byte(b.text("in.progress")), &state); err != nil {
			t.Fatal(err)
		}
		if state.Line != 0 || state.Offset != 0 {
			t.Errorf("LOAD-GAP: %d lines are counted, and the first is not committed", state.Line)
		}
		b.inject = nil
		b.must(shell.ExitDone, "400 rows loaded", "load", "u", "@in")
	})
}

// A batch with an unknown outcome is written once more. (In a bubble: settling the outcome takes
// seconds.)
func TestLoadAfterAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulk(t)
		b.stdin = lines(20)
		var lost atomic.Uint64 // the transaction
		b.inject = func(req *pb.TabletRequest) txntest.Fault {
			if w := req.GetOnePhase(); w != nil && lost.CompareAndSwap(0, w.StartTs) {
				return txntest.Fault{Reply: true}
			}
			return txntest.Fault{
				Reply: req.GetOnePhase().GetStartTs() == lost.Load() && lost.Load() != 0,
				Lost:  req.GetRollback().GetStartTs() == lost.Load() && lost.Load() != 0,
			}
		}
		b.must(shell.ExitDone, "20 rows loaded", "load", "t", "--batch", "5", "--workers", "2")
		if lost.Load() == 0 {
			t.Error("nothing was lost")
		}
		if b.export() != lines(20) {
			t.Error("the table is not the file")
		}
	})
}

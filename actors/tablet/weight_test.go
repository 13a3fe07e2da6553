package tablet

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// anyText draws a row or column of at most limit bytes: zero bytes, other bytes, or mixed.
func anyText(t *rapid.T, limit int, what string) string {
	pattern := rapid.SampledFrom([]string{"\x00", "x", "x\x00", "\xff"}).Draw(t, what)
	n := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, limit)).Draw(t, what+" length")
	return strings.Repeat(pattern, n)[:n]
}

func anyCell(t *rapid.T, lim mvcc.Limits, what string) mvcc.Cell {
	return mvcc.Cell{
		Table: mvcc.TableID(rapid.Uint32Min(uint32(mvcc.FirstUserTable)).Draw(t, what+" table")),
		Row:   anyText(t, lim.Row, what+" row"), Column: anyText(t, lim.Column, what+" column"),
	}
}

// weighing executes operations on one cell one after the other: the effects that the rules allow,
// as the tablet counts them, never exceed the operation's weight.
type weighing struct {
	*rapid.T
	view *mvcctest.MemView
}

// bound applies the effects of an operation and returns their size in the tablet's batch.
func (w weighing) bound(
	what string, weight int, res mvcc.Result, muts []mvcc.Mutation, err error,
) int {
	w.Helper()
	if err != nil || res.Status != mvcc.StatusOK {
		w.Fatalf("%s: %v, %v", what, res, err)
	}
	e := encode(muts, false)
	if e.bytes > weight {
		w.Errorf("%s: %d bytes weigh %d", what, e.bytes, weight)
	}
	if e.entries > 6+weight>>17 {
		w.Errorf("%s: %d entries for a weight of %d", what, e.entries, weight)
	}
	w.view.Apply(muts)
	return e.bytes
}

// TestWeights: the weight by which clients size their messages is never less than the tablet's
// count, and not much more where the cell has all possible effects.
func TestWeights(t *testing.T) {
	lim := mvcc.DefaultLimits()
	const inline, keptError = 1 << 10, 1 << 10
	rapid.Check(t, func(t *rapid.T) {
		w := weighing{t, mvcctest.NewMemView()}
		cell, primary := anyCell(t, lim, "cell"), anyCell(t, lim, "primary")
		if cell == primary {
			cell.Column += "2"
		}
		weak := cell
		weak.Column = "weak"
		column := func(c mvcc.Cell) mvcc.ObservedColumn {
			return mvcc.ObservedColumn{Table: c.Table, Column: c.Column}
		}
		w.view.Columns[column(cell)] = mvcc.ObservedStrong
		w.view.Columns[column(weak)] = mvcc.ObservedWeak
		ack := mvcc.Cell{Table: cell.Table, Class: mvcc.ClassAck, Row: cell.Row, Column: "o"}
		w.view.Observers[column(cell)] = []string{"o"}
		short, any := rapid.IntRange(0, 2*inline), rapid.IntRange(0, lim.Value)
		sizes := rapid.OneOf(rapid.Just(inline), short, any)
		value := func(what string) []byte { return bytes.Repeat([]byte("v"), sizes.Draw(t, what)) }
		worker := mvcc.Worker{Node: 1<<64 - 1, Incarnation: 1<<64 - 1}
		const late = mvcc.Timestamp(1<<64 - 1000)
		cells, intents := []mvcc.Cell{cell}, []mvcc.Cell{weak}

		write := func(value []byte) []mvcc.CellWriteRequest {
			return []mvcc.CellWriteRequest{{Cell: cell, Kind: mvcc.KindPut, Value: value}}
		}
		put, intent := cell.PrewriteWeight, weak.IntentWeight(primary)
		decide := cell.DecisionWeight(lim) + weak.IntentDecisionWeight()
		// A replay after an unsuitable commit timestamp: the commit keeps its error.
		failed := func(ts mvcc.Timestamp) bool {
			if !rapid.Bool().Draw(t, "failed") {
				return false
			}
			for _, c := range []mvcc.Cell{cell, weak} {
				n := mvcc.Notify{TS: ts, Attempts: 1<<32 - 1, ParkedTS: late, Replay: true,
					Error:   strings.Repeat("e", keptError),
					Origins: mvcc.Origins{First: ts - 60, Until: ts - 50, Later: ts - 40}}
				w.view.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: c, Notify: &n}})
			}
			return true
		}
		prewrite := func(start mvcc.Timestamp, value []byte) {
			res, muts, err := mvcc.Prewrite(w.view, mvcc.PrewriteRequest{
				StartTS: start, Primary: primary, Expiry: late, Worker: worker,
				Writes: write(value), Intents: intents,
			}, lim)
			w.bound("prewrite", put(len(value), primary)+intent, res, muts, err)
		}

		first := value("first")
		failed(late - 450)
		one := mvcc.OnePhaseRequest{StartTS: 1, Writes: write(first), Notifies: intents}
		res, muts, err := mvcc.OnePhaseCommit(w.view, one, late-500, lim)
		weight := cell.OnePhaseWeight(len(first), lim) + weak.NotifyWeight()
		w.bound("one phase", weight, res, muts, err)

		prewrite(late-400, value("second"))
		kept := failed(late - 250)
		res, muts, err = mvcc.Commit(w.view, mvcc.CommitRequest{
			StartTS: late - 400, CommitTS: late - 300, Cells: cells, Intents: intents,
		})
		took := w.bound("commit", decide, res, muts, err)
		if full := !kept && took >= 2*inline+2048; full && decide-2*keptError > 3*took/2+2048 {
			t.Errorf("commit: %d bytes weigh %d", took, decide)
		}

		prewrite(late-200, value("third"))
		res, muts, err = mvcc.Rollback(w.view, mvcc.RollbackRequest{
			StartTS: late - 200, Cells: cells, Intents: intents,
		})
		w.bound("rollback", decide, res, muts, err)

		prewrite(late-100, value("fourth"))
		failed(late - 45)
		res, muts, err = mvcc.ResolveLock(w.view, mvcc.ResolveLockRequest{
			StartTS: late - 100, CommitTS: late - 50, Cells: cells, Intents: intents,
		})
		w.bound("roll forward", decide, res, muts, err)

		prewrite(late-40, value("fifth"))
		res, muts, err = mvcc.ResolveLock(w.view, mvcc.ResolveLockRequest{
			StartTS: late - 40, Cells: cells, Intents: intents,
		})
		w.bound("roll back", decide, res, muts, err)

		failed(late - 5)
		res, muts, err = mvcc.NotifyCells(w.view, mvcc.NotifyRequest{TS: late - 10, Cells: intents})
		w.bound("notify", weak.NotifyWeight(), res, muts, err)

		acks := []mvcc.CellWriteRequest{{Cell: ack, Kind: mvcc.KindPut}}
		long := mvcc.Notify{TS: late, Error: strings.Repeat("e", keptError), Replay: true,
			Origins: mvcc.Origins{First: 1, Until: late - 30, Later: late - 1}}
		w.view.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: cell, Notify: &long}})
		res, muts, err = mvcc.OnePhaseCommit(w.view, mvcc.OnePhaseRequest{
			StartTS: late - 20, Writes: acks, Clear: true,
		}, late-10, lim)
		w.bound("acknowledge", ack.OnePhaseWeight(0, lim), res, muts, err)
	})
}

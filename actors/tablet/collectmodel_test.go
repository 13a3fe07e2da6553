package tablet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// collectWorkload runs writers, a reader with an open snapshot, and a collector on tablet 2 and,
// after a split, tablet 3.
type collectWorkload struct {
	*rig
	rows     int
	snapshot atomic.Uint64 // open; 0: none
	written  atomic.Bool   // the writers have ended
	stop     atomic.Bool

	mu      sync.Mutex
	history map[string][]seenVersion // by row
	reads   []seenRead
}

type seenVersion struct {
	commit mvcc.Timestamp
	value  string // empty: a delete
}

type seenRead struct {
	row   string
	at    mvcc.Timestamp
	value string
}

// on sends an operation to the tablet that holds the row.
func (w *collectWorkload) on(req *pb.TabletRequest) *pb.TabletResponse {
	for {
		resp := w.try(2, req)
		if resp.GetError().GetCode() == pb.Error_CODE_WRONG_TABLET && w.port(3) != nil {
			resp = w.try(3, req)
		}
		switch resp.GetError().GetCode() {
		case pb.Error_CODE_WRONG_TABLET, pb.Error_CODE_NOT_LEADER, pb.Error_CODE_NOT_PROPOSED:
			continue // the right side of the split is starting
		}
		if resp.GetError() != nil {
			w.tb.Error(resp.GetError())
		}
		return resp
	}
}

// write commits random changes in one phase or two and records the commits.
func (w *collectWorkload) write(rng *rand.Rand, n int) {
	for i := range n {
		row := fmt.Sprintf("r%02d", rng.IntN(w.rows))
		start := w.take(1)
		value := fmt.Sprintf("%d-%d", start, i)
		if rng.IntN(8) == 0 {
			value += string(make([]byte, 2000)) // long
		}
		writes := put(row, value)
		if rng.IntN(4) == 0 {
			value, writes = "", remove(row)
		}
		commit := w.commit(rng, start, row, writes)
		if commit == 0 {
			continue
		}
		w.mu.Lock()
		w.history[row] = append(w.history[row], seenVersion{commit: commit, value: value})
		w.mu.Unlock()
	}
}

// commit returns the commit timestamp; 0: abandoned.
func (w *collectWorkload) commit(rng *rand.Rand, start mvcc.Timestamp, row string,
	writes []*pb.CellWrite) mvcc.Timestamp {
	if rng.IntN(2) == 0 {
		if res := w.on(onePhaseOf(start,
			writes)).GetMutation(); res.GetStatus() == pb.Status_STATUS_OK {
			return mvcc.Timestamp(res.CommitTs)
		}
		return 0
	}
	prewrite := prewriteOf(start, row, "")
	prewrite.GetPrewrite().Writes = writes
	res := w.on(prewrite).GetMutation()
	if res.GetStatus() == pb.Status_STATUS_OK && rng.IntN(6) > 0 {
		commit := w.take(1)
		if res := w.on(commitOf(start, commit,
			row)).GetMutation(); res.GetStatus() == pb.Status_STATUS_OK {
			return mvcc.Timestamp(res.CommitTs)
		}
		w.tb.Errorf("a prewritten transaction does not commit: %v", res)
	}
	w.on(&pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: &pb.RollbackRequest{
		StartTs: uint64(start), Cells: []*pb.Cell{cellOf(row)},
	}}})
	return 0
}

// minReads is the minimum number of values that read reads.
const minReads = 100

// read holds a snapshot open for a while and reads its unlocked rows, until the writers have ended and
// it has read minReads values.
func (w *collectWorkload) read(rng *rand.Rand) {
	for seen := 0; !w.written.Load() || seen < minReads; {
		// the collector chooses its next bound either before the snapshot is opened, and then below
		// it, or after
		w.mu.Lock()
		at := w.take(1)
		w.snapshot.Store(uint64(at))
		w.mu.Unlock()
		for range 30 {
			row := fmt.Sprintf("r%02d", rng.IntN(w.rows))
			got := w.on(getOf(at, row)).GetGet()
			if got == nil {
				continue
			}
			switch r := got.Results[0]; r.Status {
			case pb.Status_STATUS_OK:
				w.mu.Lock()
				w.reads = append(w.reads, seenRead{row: row, at: at, value: string(r.Value)})
				w.mu.Unlock()
				seen++
			case pb.Status_STATUS_LOCKED:
			default:
				w.tb.Errorf("a read from an open snapshot at %d: %v", at, r.Status)
			}
		}
		w.snapshot.Store(0)
	}
}

// collect raises bound and safepoint repeatedly, never above the open snapshot.
func (w *collectWorkload) collect() {
	for !w.stop.Load() {
		w.mu.Lock()
		bound := uint64(w.take(1))
		if at := w.snapshot.Load(); at != 0 {
			bound = min(bound, at)
		}
		w.mu.Unlock()
		for !w.stop.Load() {
			w.step(&pb.CollectRequest{Bound: bound})
			if w.step(&pb.CollectRequest{Confirm: bound}) {
				w.step(&pb.CollectRequest{Safepoint: bound})
				break
			}
		}
	}
}

// step executes a step on all existing tablets and reports whether all confirm.
func (w *collectWorkload) step(r *pb.CollectRequest) bool {
	all := true
	for id := uint64(2); id <= 3 && w.port(id) != nil; id++ {
		resp := w.try(id, collectOf(r))
		switch code := resp.GetError().GetCode(); code {
		// the right side of a split that has not received the bound yet
		case 0, pb.Error_CODE_NOT_LEADER, pb.Error_CODE_INVALID:
		default:
			w.tb.Errorf("tablet %d: %v", id, resp.Error)
		}
		all = all && resp.GetCollect().GetConfirmed()
	}
	return all
}

// check compares the values read, and those present at the end, with the commits.
func (w *collectWorkload) check() {
	for row := range w.history {
		slices.SortFunc(w.history[row], func(a, b seenVersion) int {
			return int(a.commit) - int(b.commit)
		})
	}
	live := 0
	now := w.take(1)
	for i := range w.rows {
		row := fmt.Sprintf("r%02d", i)
		w.reads = append(w.reads, seenRead{
			row: row, at: now, value: string(w.on(getOf(now, row)).GetGet().Results[0].Value),
		})
		if w.at(row, now) != "" {
			live++
		}
	}
	for _, r := range w.reads {
		if want := w.at(r.row, r.at); want != r.value {
			w.tb.Errorf("%s at %d: %.20q, want %.20q", r.row, r.at, r.value, want)
		}
	}
	if groups := w.rowsOf(); groups[mvcc.GroupWrite] != live ||
		groups[mvcc.GroupHistory]+groups[mvcc.GroupRollback] != 0 {
		w.tb.Errorf("%d rows live; left are %v", live, groups)
	}
}

// at returns the row's value at a timestamp.
func (w *collectWorkload) at(row string, at mvcc.Timestamp) (value string) {
	for _, v := range w.history[row] {
		if v.commit <= at {
			value = v.value
		}
	}
	return value
}

// TestCollectionAgainstModel: concurrent writers, an open snapshot and collection, across a split.
// Every read agrees with the model, and no superfluous entry is left at the end.
func TestCollectionAgainstModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := newRig(t, store.Options{InMemory: true})
			w := &collectWorkload{rig: r, rows: 20, history: map[string][]seenVersion{}}
			var writers, reader, collector sync.WaitGroup
			for i := range uint64(4) {
				writers.Go(func() { w.write(rand.New(rand.NewPCG(seed, i)), 150) })
			}
			reader.Go(func() { w.read(rand.New(rand.NewPCG(seed, 99))) })
			collector.Go(w.collect)
			if seed%2 == 1 {
				r.do(2, &pb.TabletRequest{
					Op: &pb.TabletRequest_Split{
						Split: &pb.SplitRequest{Table: 16, Row: []byte("r10"), NewTabletId: 3},
					},
				})
			}
			writers.Wait()
			w.written.Store(true)
			reader.Wait()
			w.stop.Store(true)
			collector.Wait()
			for id := uint64(2); id <= 2+seed%2; id++ {
				r.until(id, "it leads", func(s *pb.StatusResponse) bool { return s.Leader })
				r.raise(id, r.take(1))
				r.quiet(id)
			}
			w.check()
			if r.status(2).Collected == 0 {
				t.Error("nothing was collected")
			}
		})
	}
}

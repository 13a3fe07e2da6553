package scanner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

func TestMain(m *testing.M) {
	// The actor library counts dead letters for a second after the first; that goroutine then ends.
	leaktest.Main(m)
}

const column = "c"

var target = notify.Target{Table: 16, Column: column}

func cell(row string) mvcc.Cell { return mvcc.Cell{Table: 16, Row: row, Column: column} }

func row(i int) string { return fmt.Sprintf("row/%04d", i) }

// world is a repository with dirty cells, and a dispatcher and lock service controlled by the test.
type world struct {
	mu        sync.Mutex
	tablets   []*pb.TabletDescriptor
	rows      []string // dirty, sorted
	walks     int
	unprobed  bool // the leaders are of an earlier version
	walkErr   error
	offered   []mvcc.Cell
	answer    func(c mvcc.Cell, held bool) notify.Admission // nil: accepted and done at once
	done      []func()
	keepDone  bool
	refuse    map[string]bool // lock keys held by others
	held      map[string]uint64
	lockErr   error
	unlocked  int
	unlocks   int // messages
	submitted int // messages
}

func newWorld(rows int) *world {
	w := &world{refuse: map[string]bool{}, held: map[string]uint64{}}
	w.tablets = []*pb.TabletDescriptor{{TabletId: 2, StartTable: 16, EndUnbounded: true}}
	for i := range rows {
		w.rows = append(w.rows, row(i))
	}
	return w
}

// split cuts the world into tablets of n rows.
func (w *world) split(n int) {
	w.tablets = nil
	start := ""
	for i := n; i < len(w.rows); i += n {
		w.tablets = append(w.tablets, &pb.TabletDescriptor{
			TabletId: uint64(2 + i), StartTable: 16, StartRow: []byte(start), EndTable: 16,
			EndRow: []byte(w.rows[i]),
		})
		start = w.rows[i]
	}
	w.tablets = append(w.tablets, &pb.TabletDescriptor{
		TabletId: 1, StartTable: 16, StartRow: []byte(start), EndUnbounded: true,
	})
}

func (w *world) Tablets(context.Context, bool) ([]*pb.TabletDescriptor, error) {
	return w.tablets, nil
}

func (w *world) Walk(_ context.Context, d *pb.TabletDescriptor,
	r *pb.WalkRequest) (*pb.WalkResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.walks++
	if w.walkErr != nil {
		return nil, w.walkErr
	}
	span, _ := wire.Clip(d, mvcc.Span{Table: 16, Start: string(r.FromRow)})
	out := &pb.WalkResponse{Done: true}
	if len(r.Columns) > 0 && !w.unprobed {
		out.Probed = true
		if slices.ContainsFunc(w.rows, span.Contains) {
			for _, c := range r.Columns {
				if string(c.Column) == column {
					out.Dirty = append(out.Dirty, c)
				}
			}
		}
		return out, nil
	}
	if string(r.Column) != column {
		return out, nil
	}
	for _, row := range w.rows {
		if !span.Contains(row) || (r.After != nil && row <= string(r.After.Row)) {
			continue
		}
		if len(out.Entries) == int(r.Limit) {
			out.Done = false
			break
		}
		out.Entries = append(out.Entries,
			&pb.WalkEntry{Cell: wire.CellPB(cell(row)), Notify: &pb.Notify{Ts: 1}})
	}
	return out, nil
}

func (w *world) Submit(_ context.Context, items []notify.Dirty) ([]notify.Admission, error) {
	w.mu.Lock()
	var finished []func()
	out := make([]notify.Admission, len(items))
	w.submitted++
	for i, d := range items {
		w.offered = append(w.offered, d.Cell)
		if w.answer != nil {
			out[i] = w.answer(d.Cell, d.Held)
		}
		switch {
		case out[i] != notify.Accepted:
		case w.keepDone:
			w.done = append(w.done, d.Done)
		default:
			finished = append(finished, d.Done)
		}
	}
	w.mu.Unlock()
	for _, done := range finished {
		done()
	}
	return out, nil
}

func (w *world) TryLock(_ context.Context, owner uint64, _ time.Duration,
	keys ...string) ([]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lockErr != nil {
		return nil, w.lockErr
	}
	out := make([]bool, len(keys))
	for i, k := range keys {
		out[i] = !w.refuse[k]
		if out[i] {
			w.held[k] = owner
		}
	}
	return out, nil
}

func (w *world) Unlock(_ uint64, keys ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlocked += len(keys)
	w.unlocks++
	for _, k := range keys {
		delete(w.held, k)
	}
}

func (w *world) config() Config {
	return Config{
		Targets: []notify.Target{target}, Dispatcher: w, Places: w, Walker: w, Locker: w, Page: 16,
		Seed: 1,
	}.withDefaults()
}

// scan returns a scanner of the world with its own seed.
func (w *world) scan(cfg Config, seed uint64) *scan {
	return newScan(cfg, rand.New(rand.NewPCG(seed, 0)), newHolder(cfg.Locker, seed+1),
		&choice{again: &rechecks{every: recheck}}, newBacklogs(cfg.Targets), &Stats{})
}

var errAway = errors.New("nobody home")

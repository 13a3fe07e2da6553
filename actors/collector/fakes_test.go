package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

var errCrash = errors.New("crash")

// world fakes everything that a collector uses: the record, and tablets that refuse, confirm and
// collect by the rules. It can fail at its n-th operation, before or after executing it, and split
// tablets during a cycle.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	now     int64 // oracle time in milliseconds; every timestamp advances it
	tablets []*fakeTablet
	locks   []*fakeLock
	record  *wire.Collection
	leases  *wire.Leases

	ops, failAt int
	after       bool
	splitAt     func(op int) bool // reports whether a tablet splits before the operation
	sent        []string          // requests to tablets, in order
}

type fakeTablet struct {
	d                *pb.TabletDescriptor
	bound, safepoint uint64
	garbage          uint64
	hidden           bool // omitted from the overview
}

// fakeLock is a lock at a row whose transaction can be resolved, or only by force.
type fakeLock struct {
	row   string
	start uint64
	alive bool
}

func newWorld(t *testing.T, boundaries ...string) *world {
	w := &world{t: t, now: 1_000_000, record: &wire.Collection{}, leases: &wire.Leases{}}
	starts := append([]string{""}, boundaries...)
	for i, s := range starts {
		d := &pb.TabletDescriptor{
			TabletId: uint64(i) + 2, Epoch: 1, StartTable: uint32(mvcc.FirstUserTable),
			StartRow: []byte(s), EndUnbounded: true,
		}
		if i+1 < len(starts) {
			d.EndUnbounded, d.EndTable, d.EndRow = false, uint32(mvcc.FirstUserTable),
				[]byte(starts[i+1])
		}
		w.tablets = append(w.tablets, &fakeTablet{d: d})
	}
	return w
}

func (w *world) ts(millis int64) uint64 { return uint64(mvcc.TimestampAt(millis)) }

// op counts an operation; fail decides whether it fails.
func (w *world) op() (fail func() error, err error) {
	w.ops++
	if w.splitAt != nil && w.splitAt(w.ops) {
		w.split()
	}
	if w.ops == w.failAt && !w.after {
		return nil, errCrash
	}
	crash := w.ops == w.failAt
	return func() error {
		if crash {
			return errCrash
		}
		return nil
	}, nil
}

// split cuts the last tablet in two; the right one inherits its state.
func (w *world) split() {
	last := w.tablets[len(w.tablets)-1]
	left, right := proto.CloneOf(last.d), proto.CloneOf(last.d)
	key := append(slices.Clone(last.d.StartRow), 'm')
	left.EndUnbounded, left.EndTable, left.EndRow, left.Epoch = false, uint32(mvcc.FirstUserTable),
		key, left.Epoch+1
	right.StartRow, right.TabletId, right.Epoch = key, right.TabletId+1, left.Epoch
	child := *last
	last.d, child.d = left, right
	w.tablets = append(w.tablets, &child)
}

func (w *world) tabletAt(at wire.Position) *fakeTablet {
	for _, f := range w.tablets {
		if wire.Holds(f.d, at) {
			return f
		}
	}
	w.t.Fatalf("no tablet holds %v", at)
	return nil
}

// Send implements Client.
func (w *world) Send(_ context.Context, at wire.Position,
	req *pb.TabletRequest) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	before := w.tabletAt(at).d // as in the sender's map
	fail, err := w.op()
	if err != nil {
		return nil, nil, err
	}
	f := w.tabletAt(at)
	if req.GetStatus() != nil {
		r := &pb.StatusResponse{
			Tablet: f.d, Bound: f.bound, Safepoint: f.safepoint, Garbage: f.garbage,
		}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Status{Status: r}}, f.d, fail()
	}
	// A split while the request waits in the tablet: the tablet answers a request for the whole
	// range for its left side.
	out := w.collect(f, req.GetCollect())
	return &pb.TabletResponse{Result: &pb.TabletResponse_Collect{Collect: out}}, before, fail()
}

func (w *world) collect(f *fakeTablet, op *pb.CollectRequest) *pb.CollectResponse {
	switch {
	case op.Bound != 0:
		w.sent = append(w.sent, fmt.Sprintf("%d bound", f.d.TabletId))
		f.bound = max(f.bound, op.Bound)
	case op.Safepoint != 0:
		w.sent = append(w.sent, fmt.Sprintf("%d safepoint", f.d.TabletId))
		w.checkRaise(op.Safepoint)
		f.safepoint = max(f.safepoint, op.Safepoint)
	case op.Confirm != 0:
		w.sent = append(w.sent, fmt.Sprintf("%d confirm", f.d.TabletId))
		return w.confirm(f, op.Confirm)
	}
	return &pb.CollectResponse{Bound: f.bound, Safepoint: f.safepoint}
}

// checkRaise checks the safety property: no safepoint passes a lock or an unbound tablet.
func (w *world) checkRaise(to uint64) {
	w.t.Helper()
	for _, f := range w.tablets {
		if f.bound < to {
			w.t.Errorf("EARLY-COLLECT: a safepoint is raised to %d, and tablet %d still takes prewrites from %d on", to, f.d.TabletId, f.bound)
		}
	}
	for _, l := range w.locks {
		if l.start < to {
			w.t.Errorf("EARLY-COLLECT: a safepoint is raised to %d over the lock of transaction %d at %q", to, l.start, l.row)
		}
	}
	for _, l := range w.leases.Leases {
		if l.Oldest < to && l.Expires > w.ts(w.now) && l.Holder != "leaked" {
			w.t.Errorf("IGNORED-HOLD: a safepoint is raised to %d, and %s reads at %d", to,
				l.Holder, l.Oldest)
		}
	}
}

func (w *world) confirm(f *fakeTablet, target uint64) *pb.CollectResponse {
	out := &pb.CollectResponse{Bound: f.bound, Safepoint: f.safepoint, Confirmed: f.bound >= target}
	for _, l := range w.locks {
		cell := mvcc.Cell{Table: mvcc.FirstUserTable, Row: l.row, Column: "c"}
		if l.start < target && wire.Holds(f.d, wire.Position{Table: cell.Table, Row: cell.Row}) {
			out.Confirmed = false
			out.Unsettled = append(out.Unsettled,
				wire.LockInfoPB(mvcc.LockInfo{
					Cell: cell, Lock: mvcc.Lock{StartTS: mvcc.Timestamp(l.start)},
				}))
		}
	}
	return out
}

// prewrite delivers a prewrite, which may arrive at any time; its tablet refuses it below the
// bound.
func (w *world) prewrite(row string, start uint64, alive bool) {
	if start >= w.tabletAt(wire.Position{Table: mvcc.FirstUserTable, Row: row}).bound {
		w.locks = append(w.locks, &fakeLock{row, start, alive})
	}
}

// Timestamp implements Client.
func (w *world) Timestamp(context.Context) (mvcc.Timestamp, error) {
	fail, err := w.op()
	if err != nil {
		return 0, err
	}
	w.now++
	return mvcc.TimestampAt(w.now), fail()
}

// ResolveLock implements Client.
func (w *world) ResolveLock(_ context.Context, l mvcc.LockInfo) (bool, error) {
	return w.resolve(l, false)
}

// ForceLock implements Client.
func (w *world) ForceLock(_ context.Context, l mvcc.LockInfo) (bool, error) {
	return w.resolve(l, true)
}

func (w *world) resolve(l mvcc.LockInfo, force bool) (bool, error) {
	w.mu.Lock() // several locks are resolved concurrently
	defer w.mu.Unlock()
	fail, err := w.op()
	if err != nil {
		return false, err
	}
	n := len(w.locks)
	w.locks = slices.DeleteFunc(w.locks, func(f *fakeLock) bool {
		return f.row == l.Cell.Row && f.start == uint64(l.Lock.StartTS) && (force || !f.alive)
	})
	return len(w.locks) < n, fail()
}

// Collection implements Record.
func (w *world) Collection(context.Context) (*wire.Collection, *wire.Leases, error) {
	fail, err := w.op()
	if err != nil {
		return nil, nil, err
	}
	return proto.CloneOf(w.record), proto.CloneOf(w.leases), fail()
}

// SaveCollection implements Record.
func (w *world) SaveCollection(_ context.Context, from, to *wire.Collection,
	seen *wire.Leases) (bool, error) {
	fail, err := w.op()
	if err != nil {
		return false, err
	}
	if from.Version != w.record.Version || (seen != nil && !proto.Equal(seen, w.leases)) {
		return false, fail()
	}
	to.Version = from.Version + 1
	w.record = proto.CloneOf(to)
	return true, fail()
}

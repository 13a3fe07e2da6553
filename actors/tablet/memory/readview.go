package memory

import (
	"fmt"
	"iter"
	"math"

	"github.com/tidwall/btree"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// The view for reads. The tablet's turn captures a ReadView, and a read worker opens a Snap for
// it afterwards. The order matters: a lock either is in the captured table, or was removed
// before, and then the Snap contains its outcome.

// ReadView is the view of reads: a leader's in-memory state, captured at one moment, over a Snap
// opened afterwards. Copies share the captured state, which is immutable. Each copy belongs to one
// goroutine.
type ReadView struct {
	*store.Snap      // nil until Open
	tablet           *pb.TabletDescriptor
	limits           mvcc.Limits
	catalogue        *Catalogue
	locks            *lockTable
	bound, safepoint mvcc.Timestamp
	notified         uint64
	columns          map[columnKey]notifyView // the columns that the captured reads use
	effects          map[*pb.EffectsRequest]effectsNote
	record           Record // of changes; empty if there is none, or if no captured read uses it
	// Bytes of long values in the current answer: allowed, and used so far.
	room, taken int
}

var _ evaluate.View = (*ReadView)(nil)

// notifyView is an immutable copy of one column of the notify index, for a read worker.
type notifyView struct {
	notifies *btree.BTreeG[mvcc.CellNotify] // nil: scan the disk
	queue    *btree.BTreeG[evaluate.Queued] // nil: the order is unknown
	intents  *btree.BTreeG[mvcc.CellIntent] // nil: scan the disk
	// Numbers of unparked and parked notifications, and of intents.
	pending, parked, waiting int
	oldest                   mvcc.Timestamp
	origins                  []ageBucket // of pending notifications, for requests about effects
	uncounted                bool
}

// Capture copies the state that all reads use; Add copies what a request needs of the notification
// index and of the records of changes and effects. Trees are copied on write. d is the tablet's
// current descriptor.
func (m *Memory) Capture(d *pb.TabletDescriptor) ReadView {
	return ReadView{
		tablet: d, limits: m.cfg.Limits, catalogue: m.Catalogue, locks: m.locks.view(),
		bound: m.Bound, safepoint: m.Safepoint, notified: m.notified,
	}
}

// Add adds the columns of the index and the records that the request uses to a view captured in the
// same turn. An error is the store's.
func (m *Memory) Add(to *ReadView, req *pb.TabletRequest) error {
	if w := req.GetWalk(); w != nil {
		if err := m.loadObserved(); err != nil {
			return err
		}
		if g := mvcc.Group(w.Group); g == mvcc.GroupNotify || g == mvcc.GroupIntent {
			return m.captureWalked(to, w)
		}
	}
	if req.GetChanges() != nil && m.record != nil {
		to.record = *m.record
	}
	if req.GetPending() == nil {
		return nil
	}
	effects := req.GetPending().GetEffects()
	if effects != nil {
		if to.effects == nil {
			to.effects = map[*pb.EffectsRequest]effectsNote{}
		}
		to.effects[effects] = m.effectsOf(effects)
	}
	for key := range m.Catalogue.indexed {
		if err := m.captureColumn(to, key, effects != nil); err != nil {
			return err
		}
		if c := m.columns[key]; effects != nil && c != nil {
			v := to.columns[key]
			v.origins = c.origins.counted()
			to.columns[key] = v
		}
	}
	return nil
}

// captureWalked copies the columns that a walk reads.
func (m *Memory) captureWalked(to *ReadView, w *pb.WalkRequest) error {
	if len(w.Columns) == 0 {
		return m.captureColumn(to, wire.WalkedColumn(w), true)
	}
	for _, c := range w.Columns {
		key := columnKey{Table: mvcc.TableID(w.Table), Class: mvcc.Class(c.GetClass()), Column: wire.String(c.GetColumn())}
		if err := m.captureColumn(to, key, true); err != nil {
			return err
		}
	}
	return nil
}

// captureColumn copies a column of the index: its counts, and its entries if it is scanned.
func (m *Memory) captureColumn(to *ReadView, key columnKey, walked bool) error {
	c, err := m.observed(key)
	if c == nil || err != nil {
		return err
	}
	if to.columns == nil {
		to.columns = map[columnKey]notifyView{}
	}
	v, known := to.columns[key]
	if known && !walked {
		return nil
	}
	v.pending, v.parked, v.waiting, v.oldest, v.uncounted = c.pending, c.parked, c.tally.intents,
		c.ages.oldest(), c.uncounted
	if walked && c.notifies != nil {
		v.notifies = c.notifies.Copy()
	}
	// An empty queue of a column that has lost entries provides no order.
	if q := c.queue; walked && q != nil && (!q.lost || q.tree.Len() > 0) {
		v.queue = q.tree.Copy()
	}
	if walked && c.intents != nil {
		v.intents = c.intents.Copy()
	}
	to.columns[key] = v
	return nil
}

// Open sets the Snap of the view, which was opened after the capture. What the Snap lacks
// because it was collected is below the safepoint as known now.
func (v *ReadView) Open(snap *store.Snap, safepoint mvcc.Timestamp) {
	v.Snap, v.bound = snap, max(v.bound, safepoint)
}

// Lock implements evaluate.View.
func (v *ReadView) Lock(c mvcc.Cell) (mvcc.Lock, bool) { return v.locks.get(c) }

// Locks implements evaluate.View.
func (v *ReadView) Locks(s mvcc.Span, reverse bool) iter.Seq2[mvcc.Cell, mvcc.Lock] {
	return v.locks.all(s, reverse)
}

// Observed implements evaluate.View.
func (v *ReadView) Observed(t mvcc.TableID, column string) mvcc.Observation {
	return v.catalogue.Observed(t, column)
}

// AckOf implements evaluate.View.
func (v *ReadView) AckOf(t mvcc.TableID, observer string) (mvcc.Watch, bool) {
	return v.catalogue.At(v.safepoint).AckOf(t, observer)
}

// Row implements evaluate.View.
func (v *ReadView) Row(t mvcc.TableID, row string, limit int,
	only ...mvcc.Cell) ([]mvcc.HistoryEntry, error) {
	return v.Snap.Row(t, row, limit, v.catalogue.columnsOf(t), only...)
}

// Bound implements evaluate.View.
func (v *ReadView) Bound() mvcc.Timestamp { return v.bound }

// Safepoint implements evaluate.View.
func (v *ReadView) Safepoint() mvcc.Timestamp { return v.safepoint }

// Descriptor implements evaluate.View.
func (v *ReadView) Descriptor() *pb.TabletDescriptor { return v.tablet }

// Limits implements evaluate.View.
func (v *ReadView) Limits() mvcc.Limits { return v.limits }

// Observers implements evaluate.View.
func (v *ReadView) Observers() []*pb.ObserverInfo { return v.catalogue.Message.GetObservers() }

// Notified implements evaluate.View.
func (v *ReadView) Notified() uint64 { return v.notified }

// NoRoomError reports that a read's long values do not fit into the answer size that the
// request allows.
type NoRoomError struct{ Needs int } // bytes of the long values up to the first that does not fit

// Error implements error.
func (e *NoRoomError) Error() string {
	return fmt.Sprintf("the answer's values exceed the request's limit: %d bytes so far", e.Needs)
}

// Begin begins the answer to a request, with the request's limit on the bytes of its long values.
func (v *ReadView) Begin(req *pb.TabletRequest) {
	v.room, v.taken = math.MaxInt, 0
	if most := req.GetMaxAnswerBytes(); most > 0 {
		v.room = int(most)
	}
}

// Data returns a long value. It does not read one that does not fit: a client that requests
// many at once must not cost the workers' time and the node's memory for answers that are
// discarded.
func (v *ReadView) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	value, n, ok, err := v.DataWithin(c, start, v.room-v.taken)
	v.taken += n
	if err == nil && v.taken > v.room {
		return nil, false, &NoRoomError{Needs: v.taken}
	}
	return value, ok, err
}

// Notifies iterates the column's notifications from fromRow on, or from the row after it, from
// memory if they are there.
func (v *ReadView) Notifies(column mvcc.ObservedColumn, fromRow string,
	after bool) iter.Seq2[mvcc.CellNotify, error] {
	tree := v.columns[column].notifies
	if tree == nil {
		return v.Snap.Notifies(column, fromRow, after)
	}
	return func(yield func(mvcc.CellNotify, error) bool) {
		tree.Ascend(mvcc.CellNotify{Cell: mvcc.Cell{Row: fromRow}}, func(n mvcc.CellNotify) bool {
			return (after && n.Cell.Row == fromRow) || yield(n, nil)
		})
	}
}

// Intents iterates the column's intents from fromRow on, from memory if they are there.
func (v *ReadView) Intents(t mvcc.TableID, column, fromRow string) iter.Seq2[mvcc.CellIntent,
	error] {
	tree := v.columns[columnKey{Table: t, Column: column}].intents
	if tree == nil {
		return v.Snap.Intents(t, column, fromRow)
	}
	return func(yield func(mvcc.CellIntent, error) bool) {
		tree.Ascend(mvcc.CellIntent{Cell: mvcc.Cell{Row: fromRow}}, func(i mvcc.CellIntent) bool {
			return yield(i, nil)
		})
	}
}

// Queue iterates the column's notifications in queue order, after the given place; ok is false
// if that order is unknown.
func (v *ReadView) Queue(column mvcc.ObservedColumn,
	after uint64) (queue iter.Seq[evaluate.Queued], ok bool) {
	// A queue that has lost entries ends early; the caller then scans the column.
	tree := v.columns[column].queue
	if tree == nil {
		return nil, false
	}
	return func(yield func(evaluate.Queued) bool) {
		tree.Ascend(evaluate.Queued{Place: after + 1}, yield)
	}, true
}

// maxPending limits the entries counted on disk while the index does not know their number
// yet.
const maxPending = 2048

// Waiting counts the observer's notifications, and the intents of its column.
func (v *ReadView) Waiting(o *pb.ObserverInfo) (*pb.ObserverPending, error) {
	key := wire.NotifyColumn(o)
	n, err := v.counted(key)
	if err != nil {
		return nil, err
	}
	out := &pb.ObserverPending{
		Name: o.Name, Notifications: uint64(n.pending), Parked: uint64(n.parked),
		Intents: uint64(n.waiting), OldestTs: uint64(n.oldest),
	}
	if column := wire.ColumnOf(o); column != key {
		of, err := v.counted(column)
		out.Intents = uint64(of.waiting)
		return out, err
	}
	return out, nil
}

// counted returns a column with the numbers of its entries, from the index's counts, or by a
// bounded scan of the disk while a worker still counts them.
func (v *ReadView) counted(key columnKey) (notifyView, error) {
	n := v.columns[key]
	if !n.uncounted {
		return n, nil
	}
	span, ok := wire.Clip(v.tablet, mvcc.Span{Table: key.Table})
	if !ok {
		return notifyView{}, nil
	}
	var seen tally // of this scan alone
	err := seen.count(v.Snap, key, span, maxPending)
	return notifyView{
		pending: seen.pending, parked: seen.parked, waiting: seen.intents,
		oldest: seen.ages.oldest(),
	}, err
}

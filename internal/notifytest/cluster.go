package notifytest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/internal/wire"
)

// Cluster is a repository in memory whose notify, lock and intent groups can be walked,
// and that gives hints.
type Cluster struct {
	*txntest.Cluster
	listener atomic.Pointer[func(cells []mvcc.Cell)]

	// mu guards the rest for those who look from outside: the cluster's own lock is held
	// by everyone else.
	mu      sync.Mutex
	columns map[mvcc.ObservedColumn]bool
	dirty   cellIndex[mvcc.Notify]
	intents cellIndex[map[mvcc.Timestamp]mvcc.Intent]
	written uint64 // notify entries
}

// NewCluster returns an empty cluster.
func NewCluster() *Cluster {
	c := &Cluster{
		Cluster: txntest.New(), columns: map[mvcc.ObservedColumn]bool{},
		dirty: newCellIndex[mvcc.Notify](), intents: newCellIndex[map[mvcc.Timestamp]mvcc.Intent](),
	}
	c.Extend(c)
	return c
}

// Observed marks a column as observed.
func (c *Cluster) Observed(table mvcc.TableID, column string, weak bool) {
	how := mvcc.ObservedStrong
	if weak {
		how = mvcc.ObservedWeak
	}
	c.mu.Lock()
	c.columns[mvcc.ObservedColumn{Table: table, Column: column}] = true
	c.mu.Unlock()
	c.Observe(table, column, how)
}

// Listen makes f hear of cells that have become dirty, outside of any lock; false if
// somebody does already.
func (c *Cluster) Listen(f func(cells []mvcc.Cell)) bool { return c.listener.CompareAndSwap(nil, &f) }

// Notification is a cell's entry in the notify group.
func (c *Cluster) Notification(cell mvcc.Cell) (mvcc.Notify, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.dirty.cells[cell]
	return n, ok
}

// Mark writes an entry of the notify group directly: a replay, or what a crash has left.
func (c *Cluster) Mark(cell mvcc.Cell, n mvcc.Notify) {
	c.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: cell, Notify: &n}})
}

// Dirty is how many entries the notify group has.
func (c *Cluster) Dirty() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.dirty.cells)
}

// Locked reports whether the cell has a lock, or, for a weak column, whether it has an intent.
func (c *Cluster) Locked(cell mvcc.Cell) bool {
	locked := false
	c.Look(func(v *mvcc.MemView) { _, locked = v.Lock(cell) })
	c.mu.Lock()
	defer c.mu.Unlock()
	return locked || len(c.intents.cells[cell]) > 0
}

// Fill puts committed values into the column of many rows at once, without marking them dirty.
func (c *Cluster) Fill(table mvcc.TableID, column string, rows int, name func(i int) string) {
	ts := c.Timestamps(2)
	list := make([]mvcc.Mutation, rows)
	for i := range list {
		list[i] = mvcc.Mutation{
			Group: mvcc.GroupWrite, Cell: mvcc.Cell{Table: table, Row: name(i), Column: column},
			Write: &mvcc.Write{CommitTS: ts + 1, StartTS: ts, Kind: mvcc.KindPut},
		}
	}
	// In order, because the view keeps a sorted slice.
	slices.SortFunc(list, func(a, b mvcc.Mutation) int { return strings.Compare(a.Cell.Row, b.Cell.Row) })
	c.Apply(list)
}

// Places is the cluster as scanners see it.
func (c *Cluster) Places() Places { return Places{c} }

// Places implements scanner.Places.
type Places struct{ cluster *Cluster }

// Tablets implements scanner.Places.
func (p Places) Tablets(context.Context, bool) ([]*pb.TabletDescriptor, error) {
	return p.cluster.Tablets(), nil
}

// Applied implements txntest.Extension: it keeps the groups that are walked, and gives
// hints for what has become dirty by a change, not by a failed run.
func (c *Cluster) Applied(effects []mvcc.Mutation) (after func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hints []mvcc.Cell
	for _, m := range effects {
		switch {
		case m.Group == mvcc.GroupIntent:
			c.intent(m)
		case m.Group == mvcc.GroupNotify && m.Delete:
			c.dirty.remove(m.Cell)
		case m.Group == mvcc.GroupNotify:
			c.dirty.put(m.Cell, *m.Notify)
			c.written++
			if m.Notify.Attempts == 0 && m.Notify.ParkedTS == 0 {
				hints = append(hints, m.Cell)
			}
		}
	}
	f := c.listener.Load()
	if f == nil || len(hints) == 0 {
		return nil
	}
	return func() { (*f)(hints) }
}

func (c *Cluster) intent(m mvcc.Mutation) {
	of := c.intents.cells[m.Cell]
	if m.Delete {
		delete(of, m.TS)
		if len(of) == 0 {
			c.intents.remove(m.Cell)
		}
		return
	}
	if of == nil {
		of = map[mvcc.Timestamp]mvcc.Intent{}
	}
	of[m.TS] = *m.Intent
	c.intents.put(m.Cell, of)
}

// Serve implements txntest.Extension.
func (c *Cluster) Serve(v *mvcc.MemView, d *pb.TabletDescriptor, req *pb.TabletRequest) *pb.TabletResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Walk:
		return &pb.TabletResponse{Result: &pb.TabletResponse_Walk{Walk: c.walk(v, d, op.Walk)}}
	case *pb.TabletRequest_Pending:
		return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: c.pending(v, d)}}
	}
	return nil
}

// pending counts what WaitIdle waits for.
func (c *Cluster) pending(v *mvcc.MemView, d *pb.TabletDescriptor) *pb.PendingResponse {
	out := &pb.PendingResponse{NotifyWritten: c.written}
	for column := range c.columns {
		span, ok := wire.Clip(d, mvcc.Span{Table: column.Table})
		if !ok {
			continue
		}
		for _, n := range c.dirty.from(column.Table, column.Column, span) {
			if n.ParkedTS != 0 {
				out.Parked++
			} else {
				out.Notifications++
			}
		}
		for _, of := range c.intents.from(column.Table, column.Column, span) {
			out.Intents += uint64(len(of))
		}
		for cell := range v.Locks(span, false) {
			if cell.Column == column.Column && cell.Class == mvcc.ClassData {
				out.Locks++
			}
		}
	}
	return out
}

package notifytest

import (
	"context"
	"slices"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// Cluster is a repository in memory, with the state examined by tests of notifications.
type Cluster struct{ *txntest.Cluster }

// NewCluster returns an empty cluster.
func NewCluster() *Cluster { return &Cluster{txntest.New()} }

// Observed adds an observer of a column, and reports whether it has notify entries of its own.
func (c *Cluster) Observed(table mvcc.TableID, column string, weak bool,
	observer string) (own bool) {
	how := mvcc.ObservedStrong
	if weak {
		how = mvcc.ObservedWeak
	}
	c.Observe(table, column, how)
	c.Look(func(v *mvcctest.MemView) {
		key := mvcc.ObservedColumn{Table: table, Column: column}
		ack := mvcc.ObservedColumn{Table: table, Class: mvcc.ClassAck, Column: observer}
		if have := v.Observers[key]; !slices.Contains(have, observer) {
			v.Own[ack] = len(have) > 0
			v.Observers[key] = append(have, observer)
		}
		own = v.Own[ack]
	})
	return own
}

// Notification returns a cell's entry in the notify group.
func (c *Cluster) Notification(cell mvcc.Cell) (n mvcc.Notify, ok bool) {
	c.Look(func(v *mvcctest.MemView) { n, ok, _ = v.Notification(cell) })
	return n, ok
}

// Mark writes an entry of the notify group directly, as a replay or a crash may leave it.
func (c *Cluster) Mark(cell mvcc.Cell, n mvcc.Notify) {
	c.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: cell, Notify: &n}})
}

// Dirty returns the number of entries in the notify group.
func (c *Cluster) Dirty() (n int) {
	c.Look(func(v *mvcctest.MemView) {
		for range v.Notifications() {
			n++
		}
	})
	return n
}

// Locked reports whether the cell has a lock, or, for a weak column, whether it has an intent.
func (c *Cluster) Locked(cell mvcc.Cell) (locked bool) {
	c.Look(func(v *mvcctest.MemView) {
		_, locked = v.Lock(cell)
		for i, err := range v.Intents(cell.Table, cell.Column, cell.Row) {
			locked = locked || (err == nil && i.Cell == cell)
		}
	})
	return locked
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
	slices.SortFunc(list, func(a, b mvcc.Mutation) int {
		return strings.Compare(a.Cell.Row, b.Cell.Row)
	})
	c.Apply(list)
}

// Places returns a scanner.Places that lists the cluster's tablets.
func (c *Cluster) Places() Places { return Places{c} }

// Places implements scanner.Places with the tablets of a Cluster.
type Places struct{ cluster *Cluster }

// Tablets implements scanner.Places.
func (p Places) Tablets(context.Context, bool) ([]*pb.TabletDescriptor, error) {
	return p.cluster.Tablets(), nil
}

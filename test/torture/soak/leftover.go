package soak

import (
	"context"
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/test/workload"
)

// leftovers lists the parked notifications or, without parked, all locks, intents and other
// notifications.
func leftovers(ctx context.Context, db *percolator.DB, parked bool) ([]string, error) {
	var out []string
	c := handle.Client(db)
	catalogue, err := c.Transport().Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	add := func(group mvcc.Group, column mvcc.ObservedColumn) error {
		for e, err := range c.WalkColumn(ctx, group, column) {
			if err != nil {
				return err
			}
			if n := e.Notify; group == mvcc.GroupNotify && (n.GetParkedTs() != 0) != parked {
				continue
			}
			out = append(out, fmt.Sprintf("%c table %d row %q column %q: %v%v%v", group, column.Table,
				e.Cell.Row, e.Cell.Column, e.Lock, e.Intent, e.Notify))
		}
		return nil
	}
	for _, o := range catalogue.GetObservers() {
		if err := add(mvcc.GroupNotify, wire.NotifyColumn(o)); err != nil {
			return nil, err
		}
		if parked || !o.Weak {
			continue
		}
		if err := add(mvcc.GroupIntent, wire.ColumnOf(o)); err != nil {
			return nil, err
		}
	}
	if parked {
		return out, nil
	}
	for _, name := range append(slices.Clip(tables), workload.Table) {
		id, err := c.TableID(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := add(mvcc.GroupLock, mvcc.ObservedColumn{Table: id}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// past are the groups of which collection leaves nothing.
var past = []mvcc.Group{mvcc.GroupHistory, mvcc.GroupRollback, mvcc.GroupLocked}

// outdated lists what a row holds besides the newest versions that exist: older ones, records
// of rollbacks and of locks without a write, and everything of a row that does not exist.
func outdated(ctx context.Context, db *percolator.DB, table, row string,
	exists bool) (out []string, err error) {
	c := handle.Client(db)
	id, err := c.TableID(ctx, table)
	if err != nil {
		return nil, err
	}
	req := &pb.TabletRequest{
		Op: &pb.TabletRequest_History{
			History: &pb.HistoryRequest{Table: uint32(id), Row: wire.Bytes(row), Limit: 1000},
		},
	}
	resp, d, err := c.Send(ctx, wire.Position{Table: id, Row: row}, req)
	if err != nil {
		return nil, err
	}
	for _, e := range resp.GetHistory().GetEntries() {
		g := mvcc.Group(e.Group)
		if !exists || slices.Contains(past, g) {
			out = append(out, fmt.Sprintf("%s %q in tablet %d: %.200v", table, row, d.TabletId, e))
		}
	}
	return out, nil
}

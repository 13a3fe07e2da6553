package rpc

import (
	"context"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// tableIDs tracks the highest allocated table id. Tablets know dropped tables but not future
// ones: cells that a client wrote under an unallocated id would appear in the table that later
// gets it.
//
// Ids only grow, since package meta never reuses one; so the bound stays valid, and only higher ids
// require a query to meta. These are rare, since every id that a client knows was in an
// earlier answer. Workers of all streams share it; one at a time queries meta, with its own
// context.
type tableIDs struct {
	transport txn.Transport
	highest   atomic.Uint32
	outcomes  atomic.Uint32 // id of OutcomesTable; 0: none of the ids up to highest is its id
	asking    chan struct{} // capacity 1: one query at a time, however many invalid ids arrive
}

// newTableIDs returns a tableIDs that has seen no id yet.
func newTableIDs(transport txn.Transport) *tableIDs {
	return &tableIDs{transport: transport, asking: make(chan struct{}, 1)}
}

// learn raises the bound to allocated ids.
func (t *tableIDs) learn(ids ...uint32) {
	for _, id := range ids {
		for have := t.highest.Load(); id > have && !t.highest.CompareAndSwap(have, id); {
			have = t.highest.Load()
		}
	}
}

// created records the id of a new table, unless ids between the bound and it are unknown: one of those
// may be that of OutcomesTable.
func (t *tableIDs) created(id uint32) { t.highest.CompareAndSwap(id-1, id) }

// check returns an error if the table id is not allocated, or meta has not answered.
func (t *tableIDs) check(ctx context.Context, id uint32) *pb.Error {
	if id <= t.highest.Load() {
		return nil
	}
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	case <-ctx.Done():
		return errorOf(pb.Error_CODE_UNAVAILABLE, "the request ended before its table was looked up")
	}
	// Another worker may have queried meta in the meantime.
	if id <= t.highest.Load() {
		return nil
	}
	if err := t.ask(ctx); err != nil {
		return errorOf(pb.Error_CODE_UNAVAILABLE, "the request's table could not be looked up: %v", err)
	}
	if id > t.highest.Load() {
		return errorOf(pb.Error_CODE_NO_TABLE, "no table has the id in the request")
	}
	return nil
}

// ask reads the existing tables, and then the dropped ones: a table dropped in between is in
// both lists.
func (t *tableIDs) ask(ctx context.Context) error {
	tables, err := t.transport.Tables(ctx)
	if err != nil {
		return err
	}
	catalogue, err := t.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if table.GetName() == OutcomesTable && table.GetDroppedTs() == 0 {
			t.outcomes.Store(table.GetId()) // before the bound is raised, see outcomes.go
		}
	}
	for _, table := range tables {
		t.learn(table.GetId())
	}
	t.learn(catalogue.GetDroppedTables()...)
	for _, gone := range catalogue.GetGone() {
		t.learn(gone.GetLast())
	}
	return nil
}

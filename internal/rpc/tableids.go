package rpc

import (
	"context"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// tableIDs knows how far table ids have been given out. Tablets know which tables were
// dropped, not which there will be: what a client wrote under an id that is still to be
// given out would appear in the table that gets it.
//
// Ids only grow (invariant 1 of package meta), so what is known stays true, and only
// higher ids cost a question to meta. Every id that a client may know was in an answer
// before, so those are rare. Workers of all streams share it; one at a time asks, with
// its own context.
type tableIDs struct {
	transport txn.Transport
	highest   atomic.Uint32
	asking    chan struct{} // capacity 1: one question at a time, however many bad ids there are
}

// newTableIDs returns a tableIDs that knows of no id yet.
func newTableIDs(transport txn.Transport) *tableIDs {
	return &tableIDs{transport: transport, asking: make(chan struct{}, 1)}
}

// learn raises what is known to ids that were given out.
func (t *tableIDs) learn(ids ...uint32) {
	for _, id := range ids {
		for have := t.highest.Load(); id > have && !t.highest.CompareAndSwap(have, id); {
			have = t.highest.Load()
		}
	}
}

// check returns why an operation on tables up to id is refused, nil if it is not.
func (t *tableIDs) check(ctx context.Context, id uint32) *pb.Error {
	if id <= t.highest.Load() {
		return nil
	}
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	case <-ctx.Done():
		return &pb.Error{
			Code:    pb.Error_CODE_UNAVAILABLE,
			Message: "the request ended before its table was looked up",
		}
	}
	// Another worker has asked meanwhile.
	if id <= t.highest.Load() {
		return nil
	}
	if err := t.ask(ctx); err != nil {
		return &pb.Error{
			Code: pb.Error_CODE_UNAVAILABLE, Message: "its table could not be looked up: " +
				err.Error(),
		}
	}
	if id > t.highest.Load() {
		return &pb.Error{Code: pb.Error_CODE_NO_TABLE, Message: "no table has been given this id"}
	}
	return nil
}

// ask reads which tables there are, and then which there were: a table that is dropped in
// between is in both.
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
		t.learn(table.GetId())
	}
	t.learn(catalogue.GetDroppedTables()...)
	for _, gone := range catalogue.GetGone() {
		t.learn(gone.GetLast())
	}
	return nil
}

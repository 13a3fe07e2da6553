package meta

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file keeps the records of back-fills. It holds nothing in memory: each method
// reads its rows and writes them back by a conditional write, on its caller's goroutine.
// Callers are the Admin service (start, cancel, read) and the back-fill actor beside
// meta's leader (save). While leadership moves there may be two such actors, and a
// cancellation may race either: changeBackfill sees to it that none undoes another.

// prefixBackfill begins the rows of back-fill records, one per observer, each of its last
// back-fill.
const prefixBackfill = "backfill/"

// BackfillRecords are the progress of back-fills.
type BackfillRecords struct{ records }

// Backfill reads the record of the observer's last back-fill; nil if there was none. An
// unknown observer is refused.
func (r *BackfillRecords) Backfill(ctx context.Context, name string) (*pb.Backfill, error) {
	c, _, err := load[*pb.Catalogue](ctx, r.records, rowCatalogue)
	if err != nil {
		return nil, err
	}
	if _, err := observer(c, name); err != nil {
		return nil, err
	}
	b, old, err := load[*pb.Backfill](ctx, r.records, prefixBackfill+name)
	if err != nil || old == nil {
		return nil, err
	}
	return b, nil
}

// Backfills reads the records of the observers' last back-fills, by observer; of each
// there may be none.
func (r *BackfillRecords) Backfills(ctx context.Context,
	observers []*pb.ObserverInfo) (map[string]*pb.Backfill, error) {
	out := map[string]*pb.Backfill{}
	if len(observers) == 0 {
		return out, nil
	}
	// By name, not by a walk: records change often, and a walk passes all that is left of
	// former versions.
	rows := make([]string, len(observers))
	for i, o := range observers {
		rows[i] = prefixBackfill + o.Name
	}
	values, err := r.getAll(ctx, rows...)
	for i, value := range values {
		// This observer never had a back-fill, or it was forgotten.
		if value == nil {
			continue
		}
		b, err := decode[*pb.Backfill](rows[i], value)
		if err != nil {
			return nil, err
		}
		out[b.Name] = b
	}
	return out, err
}

// StartBackfill makes a record of a back-fill at ts, a fresh timestamp, unless one runs:
// that one goes on. An unknown or retired observer is refused.
func (r *BackfillRecords) StartBackfill(ctx context.Context, name string,
	ts uint64) (*pb.Backfill, error) {
	return r.changeBackfill(ctx, name, func(o *pb.ObserverInfo, b *pb.Backfill) (*pb.Backfill,
		error) {
		// A retired observer's notifications are being removed; a back-fill would add new
		// ones.
		if o.Retired {
			return nil, refuse(pb.Error_CODE_INVALID, "observer %q is being retired", name)
		}
		if wire.BackfillRuns(b) {
			// Nothing differs, so nothing is written; the answer has the record of the
			// back-fill that runs.
			return b, nil
		}
		return &pb.Backfill{Name: name, Ts: ts}, nil
	})
}

// CancelBackfill ends the observer's back-fill, if one runs, and returns its record. Rows
// that are marked stay so.
func (r *BackfillRecords) CancelBackfill(ctx context.Context, name string) (*pb.Backfill, error) {
	return r.changeBackfill(ctx, name, func(_ *pb.ObserverInfo, b *pb.Backfill) (*pb.Backfill,
		error) {
		// One that has ended stays as it is: it was completed, which a cancellation would
		// hide.
		if wire.BackfillRuns(b) {
			b.Cancelled = true
		}
		return b, nil
	})
}

// SaveBackfill stores the progress of a back-fill. goesOn is false if it is to end: it
// was cancelled, another one has taken its place, or its observer is retired or gone;
// then nothing is stored.
func (r *BackfillRecords) SaveBackfill(ctx context.Context,
	b *pb.Backfill) (goesOn bool, err error) {
	stored, err := r.changeBackfill(ctx, b.Name,
		func(o *pb.ObserverInfo, have *pb.Backfill) (*pb.Backfill, error) {
			// The timestamp tells this back-fill from a later one of the same observer.
			goesOn = wire.BackfillRuns(have) && have.Ts == b.Ts && !o.Retired
			if !goesOn {
				return have, nil
			}
			return proto.CloneOf(b), nil
		})
	return goesOn && wire.BackfillRuns(stored), err
}

// changeBackfill replaces a record by what fn makes of it, if that is something else. fn
// is called again if another was faster; what it returns belongs to the caller.
func (r *BackfillRecords) changeBackfill(
	ctx context.Context, name string, fn func(*pb.ObserverInfo, *pb.Backfill) (*pb.Backfill, error),
) (*pb.Backfill, error) {
	return update(ctx, r.records, prefixBackfill+name,
		func(b *pb.Backfill) (*pb.Backfill, []change, error) {
			c, catalogue, err := load[*pb.Catalogue](ctx, r.records, rowCatalogue)
			if err != nil {
				return nil, nil, err
			}
			o, err := observer(c, name)
			if err != nil {
				return nil, nil, err
			}
			to, err := fn(o, b)
			// No record may outlive its observer.
			same := change{row: rowCatalogue, old: catalogue, keep: true}
			return to, []change{same}, err
		})
}

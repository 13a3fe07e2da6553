package meta

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Records of back-fills. Nothing is cached: each method reads its rows and replaces them by a
// conditional write, on its caller's goroutine. Callers are the Admin service (start, cancel,
// read) and the back-fill actor on the node that leads meta (save). During a change of leadership
// there may be two such actors, and a cancellation may race either; changeBackfill ensures that
// neither overwrites the other.

// prefixBackfill is the prefix of the rows of back-fill records: the last back-fill of each
// observer.
const prefixBackfill = "backfill/"

// BackfillRecords stores the progress of back-fills.
type BackfillRecords struct{ records }

// Backfill returns the record of the observer's last back-fill, or nil if there was none. It
// rejects an unknown observer.
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

// Backfills returns the records of the observers' last back-fills, by observer. Observers without
// one are missing.
func (r *BackfillRecords) Backfills(ctx context.Context,
	observers []*pb.ObserverInfo) (map[string]*pb.Backfill, error) {
	out := map[string]*pb.Backfill{}
	if len(observers) == 0 {
		return out, nil
	}
	// Get by name instead of a range scan: records change often, and a scan reads over all
	// remaining versions.
	rows := make([]string, len(observers))
	for i, o := range observers {
		rows[i] = prefixBackfill + o.Name
	}
	values, err := r.getAll(ctx, rows...)
	for i, value := range values {
		// This observer has no back-fill, or was removed.
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

// StartBackfill creates the record of a back-fill at ts, a new timestamp, of the rows of versions
// below the given one, or of all rows if that is 0. A running back-fill of the same rows continues
// instead. StartBackfill rejects an unknown or retired observer, a weak one with a version, and a
// running back-fill of other rows.
func (r *BackfillRecords) StartBackfill(ctx context.Context, name string,
	ts uint64, below uint32) (*pb.Backfill, error) {
	return r.changeBackfill(ctx, name, func(o *pb.ObserverInfo, b *pb.Backfill) (*pb.Backfill,
		error) {
		// A retired observer's notifications are being removed; a back-fill would add more.
		if o.Retired {
			return nil, refuse(pb.Error_CODE_INVALID, "observer %q is being retired", name)
		}
		if below > 0 && o.Weak {
			return nil, refuse(pb.Error_CODE_INVALID, "observer %q is weak: it has no acknowledgments, which "+
				"record the versions of runs; replay all rows", name)
		}
		if wire.BackfillRuns(b) && b.BelowVersion != below {
			return nil, refuse(pb.Error_CODE_INVALID, "a replay of observer %q for %s is running: wait until it has "+
				"ended, or cancel it", name, rowsOf(b))
		}
		if wire.BackfillRuns(b) {
			// Nothing changes, so nothing is written; the response has the record of the running
			// back-fill.
			return b, nil
		}
		return &pb.Backfill{Name: name, Ts: ts, BelowVersion: below}, nil
	})
}

// rowsOf describes the rows of a back-fill.
func rowsOf(b *pb.Backfill) string {
	if b.BelowVersion == 0 {
		return "all rows"
	}
	return fmt.Sprintf("rows below version %d", b.BelowVersion)
}

// CancelBackfill cancels the observer's running back-fill, if any, and returns the record of the
// last one, nil if there was none. Rows already marked stay marked.
func (r *BackfillRecords) CancelBackfill(ctx context.Context, name string) (*pb.Backfill, error) {
	return r.changeBackfill(ctx, name, func(_ *pb.ObserverInfo, b *pb.Backfill) (*pb.Backfill,
		error) {
		// A cancellation must not hide how a back-fill has ended.
		if wire.BackfillRuns(b) {
			b.Cancelled = true
		}
		return b, nil
	})
}

// SaveBackfill stores the progress of a back-fill. goesOn is false if it must stop: it was
// cancelled or replaced by another, or its observer is retired or removed; then nothing is
// stored.
func (r *BackfillRecords) SaveBackfill(ctx context.Context,
	b *pb.Backfill) (goesOn bool, err error) {
	stored, err := r.changeBackfill(ctx, b.Name,
		func(o *pb.ObserverInfo, have *pb.Backfill) (*pb.Backfill, error) {
			// The timestamp distinguishes this back-fill from a later one of the same observer.
			goesOn = wire.BackfillRuns(have) && have.Ts == b.Ts && !o.Retired
			if !goesOn {
				return have, nil
			}
			return proto.CloneOf(b), nil
		})
	return goesOn && wire.BackfillRuns(stored), err
}

// changeBackfill replaces a record by fn's result if that differs. fn is called again after a
// conflict; its result belongs to the caller.
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

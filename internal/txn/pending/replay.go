package pending

import (
	"context"
	"iter"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// replayBatch is the maximum number of parked notifications replayed at one timestamp.
const replayBatch = 512

// Replay makes the observers whose notify cells these are (wire.NotifyColumn) run again for them,
// regardless of acknowledgments before at, and resets the failure counts of parked
// notifications. at must be a timestamp allocated by the oracle; 0 means a new one. It may be
// repeated with the same timestamp: a strong observer that has run since does not run again. It
// returns ErrNotifyOnly if a cell is no observer's notify cell. If it returns an error, some of the
// observers may still run again.
func (o *Observers) Replay(ctx context.Context, at mvcc.Timestamp, cells []mvcc.Cell) error {
	if at == 0 {
		var err error
		if at, err = o.oracle.Get(ctx); err != nil {
			return err
		}
	}
	return o.router.Notify(ctx, &pb.NotifyRequest{Ts: uint64(at), Replay: true}, cells, nil)
}

// ReplayParked replays all currently parked notifications of the observer and returns their
// number. After each batch it calls progress with the number so far.
func (o *Observers) ReplayParked(ctx context.Context, observer string,
	progress func(replayed uint64)) (replayed uint64, err error) {
	of, err := o.registered(ctx, observer)
	if err != nil {
		return 0, err
	}
	var cells []mvcc.Cell
	flush := func() error {
		if len(cells) == 0 {
			return nil
		}
		// A new timestamp per batch, above those at which its notifications were parked.
		if err := o.Replay(ctx, 0, cells); err != nil {
			return err
		}
		replayed += uint64(len(cells))
		cells = cells[:0]
		progress(replayed)
		return nil
	}
	for e, err := range o.parked(ctx, of) {
		if err != nil {
			return replayed, err
		}
		if cells = append(cells, wire.Cell(e.Cell)); len(cells) == replayBatch {
			if err := flush(); err != nil {
				return replayed, err
			}
		}
	}
	return replayed, flush()
}

// Parked returns the observer of that name and yields its parked notifications, in row order.
func (o *Observers) Parked(ctx context.Context, observer string) (*pb.ObserverInfo,
	iter.Seq2[*pb.WalkEntry, error], error) {
	of, err := o.registered(ctx, observer)
	if err != nil {
		return nil, nil, err
	}
	return of, o.parked(ctx, of), nil
}

func (o *Observers) parked(ctx context.Context,
	of *pb.ObserverInfo) iter.Seq2[*pb.WalkEntry, error] {
	return func(yield func(*pb.WalkEntry, error) bool) {
		for e, err := range o.router.WalkFrom(ctx, mvcc.GroupNotify, wire.NotifyColumn(of), "") {
			if err == nil && e.GetNotify().GetParkedTs() == 0 {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// ReplayRow replays the parked notification of one row. It returns ErrInvalid if none is
// parked.
func (o *Observers) ReplayRow(ctx context.Context, observer, row string) error {
	of, err := o.registered(ctx, observer)
	if err != nil {
		return err
	}
	for e, err := range o.router.WalkFrom(ctx, mvcc.GroupNotify, wire.NotifyColumn(of), row) {
		if err != nil {
			return err
		}
		if cell := wire.Cell(e.Cell); cell.Row == row && e.GetNotify().GetParkedTs() != 0 {
			return o.Replay(ctx, 0, []mvcc.Cell{cell})
		}
		break // the row's notification would be the first
	}
	return request.Invalid("observer %q has no parked notification for row %q: none was parked, or the observer "+
		"has run since, or the row has changed", observer, row)
}

// registered returns the observer of that name.
func (o *Observers) registered(ctx context.Context, name string) (*pb.ObserverInfo, error) {
	catalogue, err := o.meta.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	for _, known := range catalogue.GetObservers() {
		if known.Name == name {
			return known, nil
		}
	}
	return nil, request.Invalid("there is no observer %q", name)
}

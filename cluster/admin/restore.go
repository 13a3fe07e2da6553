package admin

import (
	"context"
	"errors"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Restores of tables from backups: their start, their records and their end. The state of a
// restore is in meta.

// RestoreTable implements pb.AdminServer: it creates the table with the mark of the restore,
// continues one with the same mark, or finishes it. It rejects a table with another mark, but does
// not check that a table without a mark is empty: the client does. While the mark exists,
// transactions do not find the table.
func (s *Service) RestoreTable(ctx context.Context,
	req *pb.RestoreTableRequest) (*pb.RestoreTableResponse, error) {
	mark := req.GetMark()
	now, err := s.cfg.Client.Timestamp(ctx)
	switch {
	case err != nil:
		return nil, err
	// An earlier build would let clients write to a table with the mark.
	case !s.cfg.Gate.Has(version.Backups):
		return nil, refuse("%v", s.cfg.Gate.Check(version.Backups))
	case mark.GetSource() == "" || mark.GetAt() == 0:
		return nil, refuse("the mark of a restore must name its source and its timestamp")
	// Restored records keep their timestamps: those in the future could be neither read nor
	// overwritten.
	case mvcc.Timestamp(mark.At) >= now:
		return nil, refuse("the backup's timestamp %d is ahead of this cluster's time %d: wait until "+
			"it has passed, or correct the nodes' clocks", mark.At, now)
	}
	// The half-restored past must not be read: the tablets' read bound is raised to now.
	if req.Finish {
		id, err := s.cfg.Restores.Finish(ctx, req.Name, mark, now)
		return &pb.RestoreTableResponse{TableId: id}, err
	}
	// Begin is idempotent: a client that starts over, or has lost the response, continues with
	// its table, which is empty or holds what was restored so far.
	keys := make([]string, len(req.SplitKeys))
	for i, k := range req.SplitKeys {
		keys[i] = string(k)
	}
	id, resumed, err := s.cfg.Restores.Begin(ctx, req.Name, keys, req.Expiry, mark)
	if err == nil && len(keys) == 0 {
		// The new timestamp is above the start of any transaction that has seen the table unmarked.
		if now, err = s.cfg.Client.Timestamp(ctx); err == nil {
			err = s.cfg.Restores.Bind(ctx, id, now)
		}
	}
	return &pb.RestoreTableResponse{TableId: id, Resumed: resumed}, err
}

// RestoreCells implements pb.AdminServer. Cells that exist with the same timestamps are
// unchanged, so a client that does not know whether a request was executed repeats it.
func (s *Service) RestoreCells(ctx context.Context,
	req *pb.RestoreCellsRequest) (*pb.RestoreCellsResponse, error) {
	// With the client's mark: a table restored from elsewhere, or finished, accepts no more
	// cells.
	id, err := s.cfg.Restores.Table(ctx, req.GetName(), req.GetMark())
	if err != nil {
		return nil, err
	}
	// A client's message may have lists of different lengths, or cells without an address.
	r := req.GetCells()
	n := len(r.GetWrites())
	if len(r.GetStartTs()) != n || len(r.GetCommitTs()) != n ||
		slices.ContainsFunc(r.GetWrites(), func(w *pb.CellWrite) bool { return w.GetCell() == nil }) {
		return nil, refuse("each restored cell must have an address and two timestamps")
	}
	for i, w := range r.GetWrites() {
		// Use the table's id in this cluster: the backup's cluster had another one.
		w.Cell.Table = id
		if r.CommitTs[i] > req.Mark.At {
			return nil, refuse("a record committed at %d is newer than the restored timestamp %d",
				r.CommitTs[i], req.Mark.At)
		}
	}
	if len(req.GetPending()) > 0 {
		return &pb.RestoreCellsResponse{}, s.restorePending(ctx, mvcc.TableID(id), req.Pending)
	}
	err = s.cfg.Client.Restore(ctx, wire.Restore(r).Records)
	// Rejections, so that the client does not retry what cannot succeed.
	switch {
	case errors.Is(err, txn.ErrConflict):
		return nil, refuse("cannot restore to table %q: %v", req.Name, err)
	case errors.Is(err, txn.ErrInvalid), errors.Is(err, txn.ErrTooLarge),
		errors.Is(err, txn.ErrNotifyOnly), errors.Is(err, txn.ErrNoTable):
		return nil, refuse("%v", err)
	}
	return &pb.RestoreCellsResponse{}, err
}

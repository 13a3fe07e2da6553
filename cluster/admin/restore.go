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

// This file takes restores of tables from backups: where they begin and end, and the
// records in between. It keeps nothing; that a table is being restored is noted in meta.

// RestoreTable implements pb.AdminServer: it makes the table with the mark of the restore,
// goes on with one of the same mark, or ends it. A table with another mark, or with rows, is
// refused. While the mark is there, transactions do not find the table.
func (s *Service) RestoreTable(ctx context.Context,
	req *pb.RestoreTableRequest) (*pb.RestoreTableResponse, error) {
	mark := req.GetMark()
	now, err := s.cfg.Node.Timestamp(ctx)
	switch {
	case err != nil:
		return nil, err
	// An earlier build would let clients write to a table with the mark.
	case !s.cfg.Gate.Has(version.Backups):
		return nil, refuse("%v", s.cfg.Gate.Check(version.Backups))
	case mark.GetSource() == "" || mark.GetAt() == 0:
		return nil, refuse("the mark of a restore names its source and its timestamp")
	// Restored records keep their timestamps: nobody could read or overwrite those of the
	// future.
	case mvcc.Timestamp(mark.At) >= now:
		return nil, refuse("the backup's timestamp %d is ahead of this cluster's time %d: wait until "+
			"it has passed, or correct the nodes' clocks", mark.At, now)
	}
	// The past that was restored half-way may not be read: the tablets' bound is raised to now.
	if req.Finish {
		id, err := s.cfg.Restores.Finish(ctx, req.Name, mark, now)
		return &pb.RestoreTableResponse{TableId: id}, err
	}
	// Begin is idempotent: a client that starts anew, or has lost the answer, goes on with the
	// table that it has made, which is empty or holds what was restored so far.
	keys := make([]string, len(req.SplitKeys))
	for i, k := range req.SplitKeys {
		keys[i] = string(k)
	}
	id, resumed, err := s.cfg.Restores.Begin(ctx, req.Name, keys, mark)
	if err == nil && len(keys) == 0 {
		// Later than the timestamp of whoever has seen the table without the mark.
		if now, err = s.cfg.Node.Timestamp(ctx); err == nil {
			err = s.cfg.Restores.Bind(ctx, id, now)
		}
	}
	return &pb.RestoreTableResponse{TableId: id, Resumed: resumed}, err
}

// RestoreCells implements pb.AdminServer. Cells that are there already with the same
// timestamps are left as they are, so a client that does not know whether a request was done
// sends it again.
func (s *Service) RestoreCells(ctx context.Context,
	req *pb.RestoreCellsRequest) (*pb.RestoreCellsResponse, error) {
	// With the mark as the client has it: a table that is restored from elsewhere, or is
	// finished, takes no more cells.
	id, err := s.cfg.Restores.Table(ctx, req.GetName(), req.GetMark())
	if err != nil {
		return nil, err
	}
	// A client's message may have lists of different lengths, or cells without an address.
	r := req.GetCells()
	n := len(r.GetWrites())
	if len(r.GetStartTs()) != n || len(r.GetCommitTs()) != n ||
		slices.ContainsFunc(r.GetWrites(), func(w *pb.CellWrite) bool { return w.GetCell() == nil }) {
		return nil, refuse("each restored cell has an address and two timestamps")
	}
	for i, w := range r.GetWrites() {
		// The id is that of this cluster: the backup's names another table here.
		w.Cell.Table = id
		if r.CommitTs[i] > req.Mark.At {
			return nil, refuse("a record committed at %d is newer than the timestamp %d that is restored",
				r.CommitTs[i], req.Mark.At)
		}
	}
	if len(req.GetPending()) > 0 {
		return &pb.RestoreCellsResponse{}, s.restorePending(ctx, mvcc.TableID(id), req.Pending)
	}
	err = s.cfg.Node.Restore(ctx, wire.Restore(r).Records)
	// Refusals, so that the client does not try again what cannot succeed.
	switch {
	case errors.Is(err, txn.ErrConflict):
		return nil, refuse("table %q can't take what is restored: %v", req.Name, err)
	case errors.Is(err, txn.ErrInvalid), errors.Is(err, txn.ErrTooLarge),
		errors.Is(err, txn.ErrNotifyOnly), errors.Is(err, txn.ErrNoTable):
		return nil, refuse("%v", err)
	}
	return &pb.RestoreCellsResponse{}, err
}

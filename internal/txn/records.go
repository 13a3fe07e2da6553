package txn

import (
	"context"
	"iter"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// Reading and writing of cells' records for backups, with both timestamps and including
// acknowledgments. A scan runs on the goroutine that iterates and leaves no state in the
// client.

// recordPageBytes is the page size of record scans. It is small because users' reads share the
// read workers with them.
const recordPageBytes = 256 << 10

// RecordScan selects the records that Records yields.
type RecordScan struct {
	Span mvcc.Span
	// At is the scan's timestamp. The caller must hold its history during the scan.
	At mvcc.Timestamp
	// Since, if not 0, adds every older record above it, including deletes. The caller must
	// hold its history too.
	Since mvcc.Timestamp
	// Reverse scans in descending order. Limit is the approximate maximum number of rows per page,
	// for callers that stop after as many: Records does not end there. 0 means no limit.
	Reverse bool
	Limit   int
	// After, if not nil, is the cell at which to resume: after the record with commit
	// timestamp AfterTS if that is not 0, otherwise after all records of the cell.
	After   *mvcc.Cell
	AfterTS mvcc.Timestamp
}

// Records yields the records of a range in the order of cells, descending if Reverse is set, the
// newest of each cell first.
// It ends after an error, which is ErrSnapshotTooOld if At or Since is below a tablet's history.
func (c *Client) Records(ctx context.Context, scan RecordScan) iter.Seq2[mvcc.ReadCell, error] {
	return func(yield func(mvcc.ReadCell, error) bool) {
		pages := scanner{
			c: c, at: scan.At, span: scan.Span, reverse: scan.Reverse, wanted: scan.Limit,
			resume: scan.After, records: true, acks: true, since: scan.Since,
			resumeTS: uint64(scan.AfterTS),
		}
		for {
			page, err := pages.page(ctx)
			if err != nil {
				yield(mvcc.ReadCell{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, p := range page {
				if p.StartTs == 0 {
					yield(mvcc.ReadCell{}, Errorf("%w: the node that leads a tablet runs a release without backups",
						ErrInvalid))
					return
				}
				if !yield(record(p), nil) {
					return
				}
			}
		}
	}
}

// record converts a record. It shares the value.
func record(p *pb.ReadCell) mvcc.ReadCell {
	return mvcc.ReadCell{
		Cell: wire.Cell(p.Cell), Value: p.Value, Deleted: p.Deleted,
		CommitTS: mvcc.Timestamp(p.CommitTs), StartTS: mvcc.Timestamp(p.StartTs),
	}
}

// Restore writes a backup's records unchanged. They must be in the order of cells. It is
// idempotent. It returns ErrConflict if a cell has a lock or another record.
func (c *Client) Restore(ctx context.Context, records []mvcc.RestoredCell) error {
	var wait request.Retry
	for len(records) > 0 {
		d, err := c.router.Locate(ctx, request.PosOf(records[0].Cell))
		if err != nil {
			return err
		}
		// Records of other tablets, or that do not fit, follow in another message.
		n, _ := request.FirstRun(c.router, d, records, func(r mvcc.RestoredCell) (mvcc.Cell, int) {
			return r.Cell, r.Cell.DecisionWeight(c.cfg.Limits) + len(r.Value)
		})
		resp, v, err := c.router.Try(ctx, d, &pb.TabletRequest{
			Op: &pb.TabletRequest_Restore{Restore: wire.RestorePB(records[:n])},
		})
		switch v {
		case request.Answered:
			if err := restored(resp.GetMutation()); err != nil {
				return err
			}
			records, wait = records[n:], request.Retry{}
		case request.Refused:
			return err
		default: // the tablet may have been split: locate again
			if err := wait.Again(ctx, c.cfg.OperationTimeout, v, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// restored interprets the answer to one message of a restore.
func restored(res *pb.MutationResult) error {
	switch res.GetStatus() {
	case pb.Status_STATUS_OK:
		return nil
	case pb.Status_STATUS_NOTIFY_ONLY:
		return request.NotifyOnly(res)
	}
	cell := wire.Cell(res.GetConflictAt())
	if ts := mvcc.Timestamp(res.GetCommitTs()); ts != 0 {
		return Errorf("%w: row %q column %q was deleted at %s, and its history is not collected yet: drop the "+
			"table and restore it again, or run the same restore again once the cluster's history no longer includes the deletion",
			ErrConflict, cell.Row, cell.Column, time.UnixMilli(ts.Millis()).UTC().Format(time.RFC3339))
	}
	return Errorf("%w: row %q column %q has been written by another client", ErrConflict,
		cell.Row, cell.Column)
}

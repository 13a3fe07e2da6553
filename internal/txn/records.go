package txn

import (
	"context"
	"iter"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file reads and writes the records of cells as a backup has them, with both
// timestamps and of acknowledgments too. It keeps nothing in the client; a scan belongs to
// the goroutine that iterates.

// recordPageBytes is how much of such a scan is asked for at once: it goes on beside what
// users wait for, who must not wait long for a read worker.
const recordPageBytes = 256 << 10

// RecordScan says which records Records yields.
type RecordScan struct {
	Span mvcc.Span
	// At is the timestamp of the scan, which must be held as long as it goes on.
	At mvcc.Timestamp
	// Since, if not 0, adds every older record above it, deletes too. It must be held as well.
	Since mvcc.Timestamp
	// Reverse goes down; Limit is about how many rows are wanted, 0: all.
	Reverse bool
	Limit   int
	// After, if not nil, is where to go on: after that record of its cell if AfterTS, its
	// commit timestamp, is not 0, else after all of the cell.
	After   *mvcc.Cell
	AfterTS mvcc.Timestamp
}

// recordScan is what a scanner of records keeps beside what all of them do.
type recordScan struct {
	since    mvcc.Timestamp
	resumeTS uint64 // of the scanner's cell resume the records from here on were shown; 0: all of them
}

// ask makes the request one for records.
func (r *recordScan) ask(scan *pb.ScanRequest) {
	if r == nil {
		return
	}
	scan.Acks, scan.Records, scan.Since, scan.ResumeTs = true, true, uint64(r.since), r.resumeTS
	scan.MaxBytes = recordPageBytes
}

// goOn records where the page has ended. It returns false if that is not beyond the end
// of the page before.
func (r *recordScan) goOn(page *pb.ScanResponse) bool {
	if r == nil {
		return false
	}
	further := r.resumeTS != page.LastTs
	r.resumeTS = page.LastTs
	return further
}

func (r *recordScan) leave() {
	if r != nil {
		r.resumeTS = 0
	}
}

// Records yields the records of a range, by cell and of one cell the newest first.
// ErrSnapshotTooOld if At or Since is below the history that some tablet of it keeps.
func (c *Client) Records(ctx context.Context, scan RecordScan) iter.Seq2[mvcc.ReadCell, error] {
	return func(yield func(mvcc.ReadCell, error) bool) {
		pages := scanner{
			c: c, at: scan.At, span: scan.Span, reverse: scan.Reverse, wanted: scan.Limit,
			resume: scan.After, records: &recordScan{since: scan.Since, resumeTS: uint64(scan.AfterTS)},
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
					yield(mvcc.ReadCell{}, Errorf("%w: the node that leads a tablet is of a release without backups",
						ErrInvalid))
					return
				}
				if !yield(mvcc.ReadCell{
					Cell: wire.Cell(p.Cell), Value: p.Value, Deleted: p.Deleted,
					CommitTS: mvcc.Timestamp(p.CommitTs), StartTS: mvcc.Timestamp(p.StartTs),
				}, nil) {
					return
				}
			}
		}
	}
}

// Restore writes records of a backup as they were, in the order of cells. It may be
// repeated. ErrConflict if a cell has a lock or another record.
func (c *Client) Restore(ctx context.Context, records []mvcc.RestoredCell) error {
	var wait retryPolicy
	for len(records) > 0 {
		d, err := c.router.locate(ctx, posOf(records[0].Cell))
		if err != nil {
			return err
		}
		// What does not belong to this tablet, or into one message, follows in another.
		n, _ := firstRun(c.router, d, records, func(r mvcc.RestoredCell) (mvcc.Cell, int) {
			return r.Cell, r.Cell.DecisionWeight(c.cfg.Limits) + len(r.Value)
		})
		resp, v, err := c.router.try(ctx, d, &pb.TabletRequest{
			Op: &pb.TabletRequest_Restore{Restore: wire.RestorePB(records[:n])},
		})
		switch v {
		case answered:
			if err := restored(resp.GetMutation()); err != nil {
				return err
			}
			records, wait = records[n:], retryPolicy{}
		case refused:
			return err
		default: // the tablet may have been split
			if err := wait.again(ctx, &c.cfg, v, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// restored judges the answer to one message of a restore.
func restored(res *pb.MutationResult) error {
	switch res.GetStatus() {
	case pb.Status_STATUS_OK:
		return nil
	case pb.Status_STATUS_NOTIFY_ONLY:
		return notifyOnly(res)
	}
	cell := wire.Cell(res.GetConflictAt())
	if ts := mvcc.Timestamp(res.GetCommitTs()); ts != 0 {
		return Errorf("%w: row %q column %q was deleted at %s, and its history is not collected yet: drop the "+
			"table and restore it again, or run the same restore again once the cluster's history is shorter than that",
			ErrConflict, cell.Row, cell.Column, time.UnixMilli(ts.Millis()).UTC().Format(time.RFC3339))
	}
	return Errorf("%w: row %q column %q has been written by somebody else", ErrConflict,
		cell.Row, cell.Column)
}

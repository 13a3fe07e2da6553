package observer

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// The figures of a dispatcher as messages, for operators and other processes. Any goroutine may
// read them.

// rowsTimeout bounds the wait for the dispatcher's list of rows. The dispatcher never blocks,
// but may be busy.
const rowsTimeout = 100 * time.Millisecond

// Status describes the observers in the order of registration. It waits for the dispatcher up to
// 100 ms for the rows, and then omits them.
func (d *Dispatcher) Status() []*pb.ObserverStatus {
	ctx, cancel := context.WithTimeout(context.Background(), rowsTimeout)
	defer cancel()
	rows, err := d.Rows(ctx)
	stats := d.Stats()
	out := make([]*pb.ObserverStatus, len(stats))
	// rows and stats are both in the order of registration.
	for i, s := range stats {
		out[i] = s.ObserverStatus
		if err == nil { // else only the rows are missing: reading the counters cannot fail
			out[i].Rows = rows[i]
		}
	}
	return out
}

// Enough returns the number of cells, running and queued, that the observer registered at index i
// can use.
func (d *Dispatcher) Enough(i int) int { return d.observers[i].enough() }

// Run returns the reads and writes of an observer's last committed run for a row; nil if it is not
// remembered.
func (d *Dispatcher) Run(name, row string) *pb.ObserverRun {
	e, ok := d.Effects(name, row)
	if !ok {
		return nil
	}
	columns := func(l txn.ColumnList) (out []*pb.TableColumn) {
		for _, c := range l.Columns {
			out = append(out, &pb.TableColumn{Table: c.Table, Column: []byte(c.Column)})
		}
		return out
	}
	return &pb.ObserverRun{
		StartTs: uint64(e.Start), Cells: uint64(e.Cells), Batch: uint32(e.Batch), Read: columns(e.Read),
		Wrote: columns(e.Wrote), MoreRead: e.Read.More, MoreWrote: e.Wrote.More,
	}
}

// outsideWait converts a wait to a message; nil if there is none.
func outsideWait(o Outside, now time.Time) *pb.OutsideWait {
	if o.Since.IsZero() {
		return nil
	}
	return &pb.OutsideWait{
		WaitedMs: uint64(max(now.Sub(o.Since), time.Millisecond).Milliseconds()),
		NextMs:   uint64(max(o.Until.Sub(now), 0).Milliseconds()), Error: o.Error,
	}
}

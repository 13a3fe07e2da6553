package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// records returns the output of Records as lines.
func (w *world) records(c *txn.Client, scan txn.RecordScan) (lines []string, all []mvcc.ReadCell) {
	w.t.Helper()
	scan.Span.Table = w.table
	for r, err := range c.Records(w.ctx, scan) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, r)
		lines = append(lines, line(r))
	}
	return lines, all
}

func line(r mvcc.ReadCell) string {
	value := string(r.Value[:min(4, len(r.Value))])
	if r.Deleted {
		value = "deleted"
	}
	return fmt.Sprintf("%s %d %s: %s, %d to %d", r.Cell.Row, r.Cell.Class, r.Cell.Column, value,
		r.StartTS, r.CommitTS)
}

// withHistory returns a world with seven versions of a, each most of a page, three of h, of which
// the second is a deletion, and one of z with an acknowledgment. want are the lines expected from
// Records.
func withHistory(t *testing.T) (w *world, c *txn.Client, want []string) {
	t.Helper()
	w = newWorld(t)
	c, _ = w.client(txn.Config{})
	of := map[string][]string{} // the newest first
	write := func(cells map[mvcc.Cell]string) {
		var start mvcc.Timestamp
		at, err := c.Run(w.ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) (err error) {
			if start, err = tx.Start(ctx); err != nil {
				return err
			}
			for cell, value := range cells {
				if value == "" {
					tx.Delete(txn.Key{Table: "t", Row: cell.Row, Column: cell.Column})
				} else {
					tx.SetCell(cell, []byte(value))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Flush()
		for cell, value := range cells {
			r := mvcc.ReadCell{Cell: cell, Value: []byte(value), Deleted: value == "",
				StartTS: start, CommitTS: at}
			of[cell.Row] = slices.Insert(of[cell.Row], 0, line(r))
		}
	}
	for i := range 7 {
		write(map[mvcc.Cell]string{w.cell("a"): fmt.Sprintf("v%02d", i) + strings.Repeat("x", 150<<10)})
	}
	for _, value := range []string{"one", "", "two"} {
		write(map[mvcc.Cell]string{w.cell("h"): value})
	}
	ack := mvcc.Cell{Table: w.table, Row: "z", Class: mvcc.ClassAck, Column: "o"}
	write(map[mvcc.Cell]string{ack: "ack"})
	write(map[mvcc.Cell]string{w.cell("z"): "last"})
	slices.SortFunc(of["z"], strings.Compare)
	return w, c, slices.Concat(of["a"], of["h"], of["z"])
}

// TestRecords: a scan of records yields every version of every cell, with both timestamps, once and
// in order, from any resumption point and across splits.
func TestRecords(t *testing.T) {
	w, writer, want := withHistory(t)
	c, p := w.client(txn.Config{})
	at := w.Timestamps(1)
	w.set(writer, "later", "a", "h", "z")
	writer.Flush()
	splits := []string{"b", "i", "q", "aa", "h\x00"}
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetScan() != nil && len(splits) > 0 {
			w.Split(w.table, splits[0])
			splits = splits[1:]
		}
		return txntest.Fault{}
	})
	got, all := w.records(c, txn.RecordScan{At: at, Since: 1})
	if !slices.Equal(got, want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if pages := c.Stats().ScanPages; pages < 5 {
		t.Errorf("%d pages for %d records", pages, len(got))
	}
	for i := range all {
		rest, _ := w.records(c, txn.RecordScan{At: at, Since: 1, After: &all[i].Cell,
			AfterTS: all[i].CommitTS})
		if !slices.Equal(rest, want[i+1:]) {
			t.Errorf("after %s: %q", want[i], rest)
		}
		rest, _ = w.records(c, txn.RecordScan{At: at, Since: all[i].CommitTS})
		newer := slices.DeleteFunc(slices.Clone(all), func(r mvcc.ReadCell) bool {
			return r.CommitTS <= all[i].CommitTS
		})
		if len(rest) != len(newer) {
			t.Errorf("since %d: %d records, want %d", all[i].CommitTS, len(rest), len(newer))
		}
	}
	newest := []string{want[0], want[7], want[10], want[11]}
	if got, _ := w.records(c, txn.RecordScan{At: at}); !slices.Equal(got, newest) {
		t.Errorf("the newest: %q, want %q", got, newest)
	}
	slices.Reverse(newest)
	if got, _ := w.records(c, txn.RecordScan{At: at, Reverse: true}); !slices.Equal(got, newest) {
		t.Errorf("the newest, downwards: %q, want %q", got, newest)
	}
	for _, err := range c.Records(w.ctx, txn.RecordScan{Span: mvcc.Span{Table: w.table}, At: at}) {
		if err != nil {
			t.Error(err)
		}
		break // a loop that was left is not called again
	}
}

// TestRecordsRefused: a scan that cannot be complete ends with an error.
func TestRecordsRefused(t *testing.T) {
	old := &pb.TabletResponse{Result: &pb.TabletResponse_Scan{Scan: &pb.ScanResponse{
		Cells: []*pb.ReadCell{{Cell: &pb.Cell{Table: 16, Row: []byte("a")}, CommitTs: 5}}, Done: true,
	}}}
	for name, test := range map[string]struct {
		set  func(*world, *answers)
		want error
	}{
		"history is gone": {func(w *world, _ *answers) { w.SetBound(w.Timestamps(1)) },
			txn.ErrSnapshotTooOld},
		"a node of an older release": {func(_ *world, a *answers) {
			a.answer = func(*pb.TabletRequest) *pb.TabletResponse { return old }
		}, txn.ErrInvalid},
		"may not be read": {func(_ *world, a *answers) {
			a.Inject(func(*pb.TabletRequest) txntest.Fault {
				return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_PERMISSION}}
			})
		}, txn.ErrPermission},
	} {
		w := newWorld(t)
		c, a := w.answering(txn.Config{})
		w.set(c, "v", "a")
		at := w.Timestamps(1)
		test.set(w, a)
		n := 0
		for r, err := range c.Records(w.ctx, txn.RecordScan{Span: mvcc.Span{Table: w.table}, At: at}) {
			if n++; !errors.Is(err, test.want) || n > 1 {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: it has ended without an error", name)
		}
	}
}

// backup returns the records of withHistory's world, for a restore, and their lines.
func backup(t *testing.T) (records []mvcc.RestoredCell, lines []string) {
	w, c, _ := withHistory(t)
	lines, all := w.records(c, txn.RecordScan{At: w.Timestamps(1)})
	for _, r := range all {
		records = append(records, mvcc.RestoredCell{
			Cell: r.Cell, Value: r.Value, StartTS: r.StartTS, CommitTS: r.CommitTS,
		})
	}
	return records, lines
}

// TestRestore: restored records keep their timestamps, whatever happens to the messages, and
// restoring again changes nothing. No observer is notified.
func TestRestore(t *testing.T) {
	records, want := backup(t)
	code := func(code pb.Error_Code) txntest.Fault {
		return txntest.Fault{Answer: &pb.Error{Code: code}}
	}
	for name, fault := range map[string]txntest.Fault{
		"nothing fails": {},
		"reply lost":    {Reply: true},
		"lost":          {Lost: true},
		"twice":         {Twice: true},
		"not leader":    code(pb.Error_CODE_NOT_LEADER),
		"overloaded":    code(pb.Error_CODE_OVERLOADED),
		"disk full":     code(pb.Error_CODE_DISK_FULL),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Advance(time.Minute) // an oracle is ahead of restored records
			w.Observe(w.table, "c", mvcc.ObservedStrong)
			c, p := w.client(txn.Config{})
			w.get(c, "a") // the tablets are cached, and then split
			w.Split(w.table, "b")
			n := 0
			p.Inject(func(req *pb.TabletRequest) txntest.Fault {
				if req.GetRestore() == nil {
					return txntest.Fault{}
				}
				if n++; n%2 == 0 {
					return txntest.Fault{}
				}
				return fault
			})
			for range 2 {
				if err := c.Restore(w.ctx, records); err != nil {
					t.Fatal(err)
				}
				p.Inject(nil)
				if got, _ := w.records(c, txn.RecordScan{At: w.Timestamps(1)}); !slices.Equal(got, want) {
					t.Errorf("restored %q, want %q", got, want)
				}
			}
			if told := w.notifications(); len(told) != 0 {
				t.Errorf("notified: %v", told)
			}
		})
	}
}

// TestRestoreManyMessages: records too large for one message to a tablet are sent in several.
func TestRestoreManyMessages(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	messages := 0
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetRestore() != nil {
			messages++
		}
		return txntest.Fault{}
	})
	var records []mvcc.RestoredCell
	for i := range 5 {
		records = append(records, mvcc.RestoredCell{Cell: w.cell(fmt.Sprint("a", i)), StartTS: 5,
			CommitTS: 6, Value: bytes.Repeat([]byte{byte(i)}, 3<<20)})
	}
	if err := c.Restore(w.ctx, records); err != nil || messages != 3 {
		t.Errorf("%d messages, %v; want 3 and no error", messages, err)
	}
	for _, r := range records {
		if got := w.get(c, r.Cell.Row); got != string(r.Value) {
			t.Errorf("%s: %d bytes", r.Cell.Row, len(got))
		}
	}
}

// TestRestoreRefused: a restore overwrites nothing, and fails where it can never succeed.
func TestRestoreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		set  func(*world, *answers)
		want error
	}{
		"written by others": {func(w *world, a *answers) {
			c, _ := w.client(txn.Config{})
			w.set(c, "mine", "a")
		}, txn.ErrConflict},
		"locked": {func(w *world, _ *answers) {
			release := w.hold(txn.Config{}, "a", "z")
			w.t.Cleanup(func() { _ = release() })
		}, txn.ErrConflict},
		"a weak column": {func(w *world, _ *answers) {
			w.Observe(w.table, "c", mvcc.ObservedWeak)
		}, txn.ErrNotifyOnly},
		"no such table any more": {func(_ *world, a *answers) {
			a.Inject(func(*pb.TabletRequest) txntest.Fault {
				return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_NO_TABLE}}
			})
		}, txn.ErrNoTable},
		"nobody leads": {func(_ *world, a *answers) {
			a.Inject(func(*pb.TabletRequest) txntest.Fault { return txntest.Fault{NotSent: true} })
		}, txn.ErrUnavailable},
		"the map is never right": {func(_ *world, a *answers) {
			a.Inject(func(*pb.TabletRequest) txntest.Fault {
				return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_WRONG_TABLET}}
			})
		}, txn.ErrUnavailable},
		"meta cannot be asked": {func(_ *world, a *answers) {
			a.locate = func(mvcc.TableID, string) ([]*pb.TabletDescriptor, error) {
				return nil, refused(pb.Error_CODE_PERMISSION)
			}
		}, txn.ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c, a := w.answering(txn.Config{OperationTimeout: time.Second})
				test.set(w, a)
				err := c.Restore(w.ctx, []mvcc.RestoredCell{
					{Cell: w.cell("a"), StartTS: 5, CommitTS: 6, Value: []byte("restored")},
				})
				if !errors.Is(err, test.want) {
					t.Errorf("%v, want %v", err, test.want)
				}
			})
		})
	}
}

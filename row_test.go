package percolator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// wide is a cluster whose table "t" has three tablets.
type wide struct {
	*txntest.Cluster
	db *percolator.DB
	p  *txntest.Process // of db
}

func newWide(t *testing.T) *wide {
	t.Helper()
	w := &wide{Cluster: txntest.New()}
	w.AddTable("t", "m", "t")
	w.db, w.p = w.client(t, 1)
	return w
}

// client returns a handle in a new process.
func (w *wide) client(t *testing.T, process uint64) (*percolator.DB, *txntest.Process) {
	t.Helper()
	p := w.Process(7, process)
	c := txn.NewClient(p, txn.Config{LockTTL: time.Second, SettleTimeout: 10 * time.Millisecond})
	t.Cleanup(func() {
		p.Inject(nil)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return handle.NewDB(c), p
}

func col(name string) percolator.Column { return percolator.Column{Table: "t", Name: name} }

// fill writes the given columns of each row.
func (w *wide) fill(t *testing.T, rows, columns []string) {
	t.Helper()
	for part := range slices.Chunk(rows, 500) {
		if err := w.db.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
			for _, row := range part {
				for _, c := range columns {
					tx.Set(row, col(c), []byte(row+c))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// keys returns the existing rows, each with its number of cells.
func (w *wide) keys(t *testing.T, db *percolator.DB) (keys []string) {
	t.Helper()
	s, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for row, err := range percolator.ScanRows(t.Context(), s, percolator.Rows("t")) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, fmt.Sprintf("%s:%d", row.Row, len(row.Cells)))
	}
	return keys
}

func names(format string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(format, i))
	}
	return list
}

// TestScanRows: rows are complete at the boundaries of tablets and pages, in both directions,
// and include buffered writes.
func TestScanRows(t *testing.T) {
	w := newWide(t)
	w.fill(t, []string{"l", "m", "n"}, []string{"a", "b", "c"})
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx.Set("mm", col("b"), []byte("new"))
	tx.Delete("n", col("b"))
	show := func(rows percolator.RowRange, cols ...percolator.Column) (text string) {
		for row, err := range percolator.ScanRows(t.Context(), tx, rows, cols...) {
			if err != nil {
				return err.Error()
			}
			text += row.Row
			for _, c := range row.Cells {
				text += c.Column.Name
			}
			text += " "
		}
		return text
	}
	for _, test := range []struct {
		got, want string
	}{
		{show(percolator.Rows("t")), "labc mabc mmb nac "},
		{show(percolator.Rows("t").Reverse()), "nac mmb mabc labc "},
		{show(percolator.Rows("t").Reverse().Limit(2)), "nac mmb "},
		{show(percolator.Rows("t").Limit(2), col("b")), "lb mb "},
		{show(percolator.Rows("t").From("x")), ""},
	} {
		if test.got != test.want {
			t.Errorf("scanned %q, want %q", test.got, test.want)
		}
	}
	for _, err := range percolator.ScanRows(t.Context(), tx, percolator.Rows("t")) {
		if err != nil {
			t.Error(err)
		}
		break // an early break must not yield again
	}
	row, ok, err := percolator.GetRow(t.Context(), tx, "t", "m")
	if v, there := row.Get(col("b")); !ok || err != nil || string(v) != "mb" || !there {
		t.Errorf("row m is %v, %v, %v; its b is %q", row, ok, err, v)
	}
	if _, there := row.Get(percolator.Column{Table: "other", Name: "b"}); there {
		t.Error("a row has a cell of another table")
	}
	if _, ok, err := percolator.GetRow(t.Context(), tx, "t", "nothing"); ok || err != nil {
		t.Errorf("missing row: %v, %v", ok, err)
	}
	if _, _, err := percolator.GetRow(t.Context(), tx, "missing", "m"); !errors.Is(err, percolator.ErrNoTable) {
		t.Errorf("missing table: %v, want ErrNoTable", err)
	}
}

// TestDeleteRow deletes all cells of a row, including buffered ones, and no other row.
func TestDeleteRow(t *testing.T) {
	w := newWide(t)
	w.fill(t, []string{"m", "m\x00", "ma"}, []string{"a", "b"})
	if err := w.db.Transact(t.Context(), func(ctx context.Context, tx *percolator.Tx) error {
		tx.Set("m", col("c"), []byte("new"))
		return tx.DeleteRow(ctx, "t", "m")
	}); err != nil {
		t.Fatal(err)
	}
	if got := w.keys(t, w.db); fmt.Sprint(got) != "[m\x00:2 ma:2]" {
		t.Errorf("left: %q", got)
	}
}

// TestDeleteRange deletes a range in many transactions, none above the limits.
func TestDeleteRange(t *testing.T) {
	w := newWide(t)
	var rows []string
	for i := range 1200 {
		rows = append(rows, fmt.Sprintf("%c%04d", "amz"[i%3], i))
	}
	w.fill(t, append(rows, "b", "y", "zz"), []string{"a", "b"})
	w.fill(t, []string{"c"}, names("%05d", 2500))
	var most atomic.Int64
	w.p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		most.Store(max(most.Load(), int64(len(req.GetPrewrite().GetWrites())),
			int64(len(req.GetOnePhase().GetWrites()))))
		return txntest.Fault{}
	})
	d, err := w.db.DeleteRange(t.Context(), percolator.Rows("t").From("a0").Before("zz"))
	if err != nil || !d.Done || d.Rows != 1203 || d.Cells != 2404+2500 {
		t.Errorf("deleted %+v: %v", d, err)
	}
	if got := w.keys(t, w.db); fmt.Sprint(got) != "[zz:2]" {
		t.Errorf("left: %.200q", got)
	}
	if n := most.Load(); n > 1000 {
		t.Errorf("one message had %d deletions, want at most 1000", n)
	}
	if d, err := w.db.DeleteRange(t.Context(), percolator.Rows("t").From("a").Before("zz")); err != nil ||
		!d.Done || d.Cells != 0 {
		t.Errorf("empty range: %+v, %v", d, err)
	}
	if _, err := w.db.DeleteRange(t.Context(), percolator.Rows("t").Reverse()); !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("in reverse: %v, want ErrInvalid", err)
	}
}

// TestDeleteRangeWithLimit: Limit counts rows, and Next is the row after them.
func TestDeleteRangeWithLimit(t *testing.T) {
	w := newWide(t)
	w.fill(t, names("r%d", 7), []string{"a", "b"})
	all := percolator.Rows("t").Limit(3)
	for _, want := range []string{"[r3:2 r4:2 r5:2 r6:2]", "[r6:2]", "[]"} {
		d, err := w.db.DeleteRange(t.Context(), all)
		if got := fmt.Sprint(w.keys(t, w.db)); err != nil || got != want || d.Done != (want == "[]") {
			t.Errorf("deleted %+v, %v; left %s, want %s", d, err, got, want)
		}
		all = all.From(d.Next)
	}
}

// TestDeleteRangeAfterLongestRow: after a row of the maximum length Next is too long for a
// row, but a call can still continue there.
func TestDeleteRangeAfterLongestRow(t *testing.T) {
	w := newWide(t)
	longest := "r" + strings.Repeat("x", 4<<10-1)
	w.fill(t, []string{longest, "s"}, []string{"a"})
	all := percolator.Rows("t").Limit(1)
	for range 2 {
		d, err := w.db.DeleteRange(t.Context(), all)
		if err != nil || d.Rows != 1 {
			t.Fatalf("%d rows: %v", d.Rows, err)
		}
		all = all.From(d.Next)
	}
	_, err := w.db.DeleteRange(t.Context(), percolator.Rows("t").From(longest+"xy"))
	if !errors.Is(err, percolator.ErrTooLarge) {
		t.Errorf("from a row that is too long: %v, want ErrTooLarge", err)
	}
}

// TestDeleteRangeContinues: a process dies between two transactions, or during one. Another
// process continues at Next.
func TestDeleteRangeContinues(t *testing.T) {
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("in the middle of one: %t", inside), func(t *testing.T) {
			w := newWide(t)
			w.fill(t, names("k%04d", 1500), []string{"a"})
			w.fill(t, names("n%04d", 1500), []string{"a"})
			ctx, die := context.WithCancel(t.Context())
			defer die()
			commits := 0
			var locked atomic.Bool
			w.p.Inject(func(req *pb.TabletRequest) txntest.Fault {
				f := txntest.Fault{Lost: ctx.Err() != nil}
				decides := req.GetOnePhase() != nil || req.GetCommit() != nil
				if req.GetPrewrite() != nil {
					locked.Store(true)
				}
				if !inside && decides {
					if commits++; commits == 2 {
						f.Before = func(context.Context) { die() } // this message still arrives
					}
				}
				// The transaction that spans two tablets leaves its locks.
				if inside && decides && locked.Load() {
					die()
					f.Lost = true
				}
				return f
			})
			d, err := w.db.DeleteRange(ctx, percolator.Rows("t"))
			if err == nil || d.Done || d.Rows == 0 {
				t.Fatalf("the first process: %+v, %v", d, err)
			}
			w.Advance(time.Minute) // its locks expire
			other, _ := w.client(t, 2)
			rest, err := other.DeleteRange(t.Context(), percolator.Rows("t").From(d.Next))
			if err != nil || !rest.Done {
				t.Errorf("the second process: %+v, %v", rest, err)
			}
			if got := w.keys(t, other); len(got) != 0 {
				t.Errorf("left: %.200q", got)
			}
		})
	}
}

// TestDeleteRangeWithConcurrentWriter: DeleteRange completes although another process keeps writing
// a row of the range, and does not delete writes behind its position.
func TestDeleteRangeWithConcurrentWriter(t *testing.T) {
	w := newWide(t)
	w.fill(t, names("r%04d", 3000), []string{"a"})
	other, _ := w.client(t, 2)
	writes := 0
	w.p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetOnePhase() == nil || writes == 12 {
			return txntest.Fault{}
		}
		writes++
		return txntest.Fault{Before: func(ctx context.Context) {
			if err := other.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set("r0000", col("a"), []byte("again")) // conflicts at first, is behind the position later
				tx.Set(fmt.Sprintf("r%04d", 250*writes-1), col("a"), []byte("again"))
				return nil
			}); err != nil {
				t.Error(err)
			}
		}}
	})
	d, err := w.db.DeleteRange(t.Context(), percolator.Rows("t"))
	if err != nil || !d.Done {
		t.Fatalf("%+v, %v", d, err)
	}
	if got := w.keys(t, w.db); d.Rows < 2900 || writes != 12 || len(got) > 12 {
		t.Errorf("%+v after %d concurrent writes, left: %.200q", d, writes, got)
	}
}

// TestDeleteColumn deletes one column and no other. A deletion whose context ends leaves a prefix
// of the range without the column, and another call continues.
func TestDeleteColumn(t *testing.T) {
	w := newWide(t)
	w.fill(t, names("n%04d", 2500), []string{"a", "b"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	commits := 0
	w.p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if scan := req.GetScan(); scan != nil && !scan.KeysOnly {
			t.Error("values are read")
		}
		if req.GetOnePhase() != nil || req.GetCommit() != nil {
			if commits++; commits == 2 {
				return txntest.Fault{Before: func(context.Context) { cancel() }}
			}
		}
		return txntest.Fault{}
	})
	rows := percolator.Rows("t").From("n0100")
	d, err := w.db.DeleteColumnRange(ctx, rows, col("b"))
	if err == nil || d.Done || d.Cells == 0 || d.Rows != d.Cells {
		t.Fatalf("after its context has ended: %+v, %v", d, err)
	}
	w.p.Inject(nil)
	left := w.keys(t, w.db)[100:]
	whole := slices.IndexFunc(left, func(row string) bool { return strings.HasSuffix(row, ":2") })
	if whole < d.Cells || slices.ContainsFunc(left[whole:], func(row string) bool { return strings.HasSuffix(row, ":1") }) {
		t.Errorf("deleted %+v, which is no prefix of the range: %.200q", d, left)
	}
	other, _ := w.client(t, 2)
	if d, err = other.DeleteColumnRange(t.Context(), rows, col("b")); err != nil || !d.Done {
		t.Errorf("the second call: %+v, %v", d, err)
	}
	for i, row := range w.keys(t, w.db) {
		if want := fmt.Sprintf("n%04d:%d", i, map[bool]int{true: 2, false: 1}[i < 100]); row != want {
			t.Fatalf("left %s, want %s", row, want)
		}
	}
	for _, bad := range []error{
		w.db.DeleteColumn(t.Context(), rows, percolator.Column{Table: "other", Name: "b"}),
		w.db.DeleteColumn(t.Context(), rows.Reverse(), col("b")),
	} {
		if !errors.Is(bad, percolator.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", bad)
		}
	}
}

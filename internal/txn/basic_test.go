package txn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is a cluster with a table "t", split before the rows "g" and "p".
type world struct {
	*txntest.Cluster
	t     *testing.T
	ctx   context.Context
	table mvcc.TableID
	// locksAll makes clients prewrite all tablets of a transaction in several tablets.
	locksAll bool
	// async makes clients commit asynchronously where they can.
	async bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w := &world{Cluster: txntest.New(), t: t, ctx: ctx}
	w.table = w.AddTable("t", "g", "p")
	return w
}

// client returns a client of its own process.
func (w *world) client(cfg txn.Config) (*txn.Client, *txntest.Process) {
	w.t.Helper()
	p := w.Process(7, uint64(w.Timestamps(1)))
	cfg.TwoPhaseOnly = cfg.TwoPhaseOnly || w.locksAll
	cfg.AsyncCommits = func() bool { return w.async }
	c := txn.NewClient(p, cfg)
	w.t.Cleanup(func() {
		p.Inject(nil)
		p.Oracle(nil)
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return c, p
}

func key(row string) txn.Key { return txn.Key{Table: "t", Row: row, Column: "c"} }

// set writes rows in one transaction.
func (w *world) set(c *txn.Client, value string, rows ...string) mvcc.Timestamp {
	w.t.Helper()
	ts, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, t *txn.Txn) error {
		for _, row := range rows {
			t.Set(key(row), []byte(value))
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ts
}

// get reads a row in a new snapshot; "-" if it is missing.
func (w *world) get(c *txn.Client, row string) string {
	w.t.Helper()
	s, err := c.Snapshot(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.read(s, row)
}

func (w *world) read(r txn.Reader, row string) string {
	w.t.Helper()
	v, ok, err := r.Get(w.ctx, key(row))
	if err != nil {
		w.t.Fatal(err)
	}
	if !ok {
		return "-"
	}
	return string(v)
}

func (w *world) begin(c *txn.Client) *txn.Txn {
	w.t.Helper()
	t, err := c.Begin(w.ctx, txn.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

func TestCommitAndRead(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	one := w.set(c, "1", "a")
	many := w.set(c, "2", "a", "h", "z")
	if many <= one {
		t.Fatalf("commit timestamps %d, %d", one, many)
	}
	for _, row := range []string{"a", "h", "z"} {
		if got := w.get(c, row); got != "2" {
			t.Errorf("%s is %q, want 2", row, got)
		}
	}
	old, err := c.SnapshotAt(w.ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	if a, h := w.read(old, "a"), w.read(old, "h"); a != "1" || h != "-" {
		t.Errorf("at %d: a %q, h %q", one, a, h)
	}
	s := c.Stats()
	if s.OnePhase != 1 || s.TwoPhase != 1 {
		t.Errorf("one phase %d, two phases %d; want 1 of each", s.OnePhase, s.TwoPhase)
	}
	cell := uint64(len("a") + len(key("a").Column) + len("1"))
	if s.WrittenCells != 4 || s.WrittenBytes != 4*cell {
		t.Errorf("%d cells of %d bytes written, want 4 of %d", s.WrittenCells, s.WrittenBytes, 4*cell)
	}
	c.Flush()
	if n := w.Locks(w.table); n != 0 {
		t.Errorf("%d locks left", n)
	}
}

func TestReadYourWrites(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	w.set(c, "old", "a", "b", "h", "z")
	tx := w.begin(c)
	if got := w.read(tx, "a"); got != "old" {
		t.Fatal(got)
	}
	tx.Set(key("a"), []byte("new"))
	tx.Delete(key("h"))
	tx.Set(key("k"), nil)
	for row, want := range map[string]string{"a": "new", "b": "old", "h": "-", "k": "",
		"z": "old"} {
		if got := w.read(tx, row); got != want {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
	values, err := tx.GetMulti(w.ctx, []txn.Key{
		key("z"), key("h"), key("a"), key("none"), key("k"),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, v := range values {
		got += fmt.Sprintf("%v:%s ", v.Found, v.Bytes)
	}
	if want := "true:old false: true:new false: true: "; got != want {
		t.Errorf("GetMulti: %s, want %s", got, want)
	}
	if _, err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if a, h := w.get(c, "a"), w.get(c, "h"); a != "new" || h != "-" {
		t.Errorf("after commit: a %q, h %q", a, h)
	}
}

func TestConflict(t *testing.T) {
	for _, rows := range [][]string{{"a"}, {"a", "h", "z"}, {"h", "a"}} {
		w := newWorld(t)
		c, _ := w.client(txn.Config{})
		first, second := w.begin(c), w.begin(c)
		for _, row := range rows {
			first.Set(key(row), []byte("1"))
		}
		second.Set(key("a"), []byte("2"))
		if _, err := second.Commit(w.ctx); err != nil {
			t.Fatal(err)
		}
		_, err := first.Commit(w.ctx)
		if !errors.Is(err, txn.ErrConflict) {
			t.Errorf("%v: %v, want a conflict", rows, err)
		}
		c.Flush()
		if n := w.Locks(w.table); n != 0 {
			t.Errorf("%v: %d locks left", rows, n)
		}
		for _, row := range rows {
			if got := w.get(c, row); got == "1" {
				t.Errorf("%v: %s is written", rows, row)
			}
		}
	}
}

func TestTxDone(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	tx := w.begin(c)
	if _, err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrTxDone) {
		t.Error(err)
	}
	if _, _, err := tx.Get(w.ctx, key("a")); !errors.Is(err, txn.ErrTxDone) {
		t.Error(err)
	}
	if err := tx.Rollback(w.ctx); err != nil {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	long := string(make([]byte, 5<<10))
	for name, set := range map[string]func(*txn.Txn){
		"row":    func(t *txn.Txn) { t.Set(key(long), nil) },
		"column": func(t *txn.Txn) { t.Set(txn.Key{Table: "t", Column: long}, nil) },
		"value":  func(t *txn.Txn) { t.Set(key("a"), make([]byte, 4<<20+1)) },
	} {
		tx := w.begin(c)
		set(tx)
		_, err := tx.Commit(w.ctx)
		var limit *txn.LimitError
		if !errors.As(err, &limit) || limit.Limit != name || !errors.Is(err, txn.ErrTooLarge) {
			t.Errorf("%s: %v, want a *LimitError of that name", name, err)
		}
	}
	small, _ := w.client(txn.Config{TransactionBytes: 1000})
	for n, want := range map[int]error{5: nil, 100: txn.ErrTooLarge} {
		if _, err := small.Run(w.ctx, txn.Options{}, func(_ context.Context, t *txn.Txn) error {
			for i := range n {
				t.Set(key(fmt.Sprint(i)), []byte("x"))
			}
			return nil
		}); !errors.Is(err, want) {
			t.Errorf("%d cells: %v", n, err)
		}
	}
	tx := w.begin(c)
	for i := range 6 { // 24 MiB in one tablet, and more in the next
		tx.Set(key(fmt.Sprintf("a%d", i)), make([]byte, 4<<20))
		tx.Set(key(fmt.Sprintf("h%d", i)), []byte("x"))
	}
	if _, err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if v := w.get(c, "a5"); len(v) != 4<<20 {
		t.Errorf("a5 has %d bytes, want 4 MiB", len(v))
	}
}

func TestUnknownTable(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	runs := 0
	_, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		runs++
		tx.Set(txn.Key{Table: "none"}, nil)
		return nil
	})
	if !errors.Is(err, txn.ErrNoTable) || runs != 1 {
		t.Errorf("%v after %d runs", err, runs)
	}
	if err := c.CreateTable(w.ctx, "none", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		tx.Set(txn.Key{Table: "none"}, nil)
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestFutureAndPast(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	ts := w.set(c, "1", "a")
	if _, err := c.SnapshotAt(w.ctx, ts+mvcc.TimestampAt(1000)); !errors.Is(err, txn.ErrInvalid) {
		t.Errorf("the future: %v", err)
	}
	w.SetBound(ts + 1)
	s, err := c.SnapshotAt(w.ctx, ts)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(w.ctx, key("a")); !errors.Is(err, txn.ErrSnapshotTooOld) {
		t.Errorf("the past: %v", err)
	}
	for _, err := range s.Scan(w.ctx, txn.ScanSpec{Table: "t"}) {
		if !errors.Is(err, txn.ErrSnapshotTooOld) {
			t.Errorf("the past, scanned: %v", err)
		}
	}
}

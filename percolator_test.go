package percolator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var column = percolator.Column{Table: "t", Name: "c"}

// open returns an in-memory database with a table "t".
func open(t *testing.T) (context.Context, *percolator.DB, *txntest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cluster := txntest.New()
	cluster.AddTable("t", "m")
	db := handle.NewDB(txn.NewClient(cluster.Process(1, 1), txn.Config{}))
	t.Cleanup(func() {
		if err := errors.Join(db.Close(), handle.Client(db).Close()); err != nil {
			t.Error(err)
		}
		cancel()
	})
	return ctx, db, cluster
}

func put(ctx context.Context, t *testing.T, db *percolator.DB,
	rows ...string) (ts percolator.Timestamp) {
	t.Helper()
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, row := range rows {
			tx.Set(row, column, []byte("value of "+row))
		}
		return nil
	}, percolator.CommittedAt(&ts)); err != nil {
		t.Fatal(err)
	}
	return ts
}

func TestGetMultiOrder(t *testing.T) {
	ctx, db, _ := open(t)
	ts := put(ctx, t, db, "a", "m", "z")
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		tx.Set("n", column, []byte("mine"))
		tx.Delete("m", column)
		var keys []percolator.CellKey
		for _, row := range []string{"z", "none", "n", "m", "a", "z"} {
			keys = append(keys, percolator.CellKey{Row: row, Column: column})
		}
		cells, err := tx.GetMulti(ctx, keys...)
		if err != nil {
			return err
		}
		got := ""
		for _, c := range cells {
			got += fmt.Sprintf("%s=%s@%v ", c.Row, c.Value, c.CommitTS == ts)
		}
		if want := "z=value of z@true n=mine@false a=value of a@true z=value of z@true "; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestEmptyColumn: a column may have an empty name. Existing repositories may contain such
// cells, so the name cannot be rejected.
func TestEmptyColumn(t *testing.T) {
	ctx, db, _ := open(t)
	put(ctx, t, db, "r")
	empty := percolator.Column{Table: "t"}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("r", empty, []byte("unnamed"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if value, ok, err := s.Get(ctx, "r", empty); string(value) != "unnamed" || !ok || err != nil {
		t.Errorf("got %q, %v, %v", value, ok, err)
	}
	var scanned []string
	for c, err := range s.Scan(ctx, percolator.Rows("t"), empty) {
		if err != nil {
			t.Fatal(err)
		}
		scanned = append(scanned, string(c.Value))
	}
	if !slices.Equal(scanned, []string{"unnamed"}) {
		t.Errorf("scanned %q", scanned)
	}
}

func TestRowRange(t *testing.T) {
	ctx, db, _ := open(t)
	put(ctx, t, db, "a", "ab", "abc", "b", "m", "\xff", "\xff\xff", "\xff\xff\x01")
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := percolator.Rows("t")
	for want, rows := range map[string]percolator.RowRange{
		`a ab abc b m \xff \xff\xff \xff\xff\x01`: all,
		`ab abc`:                all.Prefix("ab"),
		`abc`:                   all.Prefix("ab").From("abb"),
		`a ab`:                  all.Prefix("a").Before("abb").Before("b"),
		`\xff\xff \xff\xff\x01`: all.Prefix("\xff\xff"),
		`\xff\xff\x01 \xff\xff`: all.Prefix("\xff\xff").Reverse(),
		`m b`:                   all.Before("\xff").Reverse().Limit(2),
		`b m`:                   all.From("b").Limit(2),
		``:                      all.From("c").Before("d"),
	} {
		var got []string
		for c, err := range s.Scan(ctx, rows, column) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.Trim(fmt.Sprintf("%+q", c.Row), `"`))
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("got %s, want %s", g, want)
		}
	}
	for _, err := range s.Scan(ctx, all, percolator.Column{Table: "other"}) {
		if !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("a column of another table: %v", err)
		}
	}
}

// TestWritesAfterTheEnd: writes after the end of a transaction are dropped, and their commit
// returns ErrTxDone.
func TestWritesAfterTheEnd(t *testing.T) {
	ctx, db, _ := open(t)
	for name, end := range map[string]func(*percolator.Tx) error{
		"committed": func(tx *percolator.Tx) error {
			tx.Set("before", column, nil)
			_, err := tx.Commit(ctx)
			return err
		},
		"rolled back": func(tx *percolator.Tx) error { return tx.Rollback(ctx) },
	} {
		tx, err := db.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		tx.Set("after", column, []byte(name))
		tx.Delete("before", column)
		tx.Lock("after", column)
		if _, err := tx.Commit(ctx); !errors.Is(err, percolator.ErrTxDone) {
			t.Errorf("%s: second commit: %v, want ErrTxDone", name, err)
		}
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Get(ctx, "after", column); ok || err != nil {
		t.Errorf("the write after the end is stored: %t, %v", ok, err)
	}
	if _, ok, err := s.Get(ctx, "before", column); !ok || err != nil {
		t.Errorf("a delete after the end: its cell exists: %t, %v", ok, err)
	}
}

func TestManagedTx(t *testing.T) {
	ctx, db, _ := open(t)
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		if _, err := tx.Commit(ctx); !errors.Is(err, percolator.ErrManagedTx) {
			t.Errorf("commit: %v", err)
		}
		if err := tx.Rollback(ctx); !errors.Is(err, percolator.ErrManagedTx) {
			t.Errorf("rollback: %v", err)
		}
		tx.Set("a", column, nil)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var kept *percolator.Tx
	own := errors.New("own")
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("b", column, nil)
		kept = tx
		return own
	}); !errors.Is(err, own) {
		t.Error(err)
	}
	if _, _, err := kept.Get(ctx, "a", column); !errors.Is(err, percolator.ErrTxDone) {
		t.Errorf("after the end: %v", err)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := s.Get(ctx, "a", column); !ok {
		t.Error("a is not written")
	}
	if _, ok, _ := s.Get(ctx, "b", column); ok {
		t.Error("b is written, although its function failed")
	}
	_ = s.Close()
	if _, _, err := s.Get(ctx, "a", column); !errors.Is(err, percolator.ErrClosed) {
		t.Errorf("closed snapshot: %v", err)
	}
}

// TestBytesAreCopied: values are copied by Set and by Get.
func TestBytesAreCopied(t *testing.T) {
	ctx, db, _ := open(t)
	value := []byte("abc")
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tx.Set("a", column, value)
	copy(value, "xxx")
	got, _, _ := tx.Get(ctx, "a", column)
	copy(got, "yyy")
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		got, _, err = s.Get(ctx, "a", column)
		if string(got) != "abc" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		copy(got, "zzz")
	}
}

func TestLoader(t *testing.T) {
	ctx, db, _ := open(t)
	l := db.Loader(percolator.LoaderConfig{Workers: 4, Queue: 2, Name: "load"})
	var running, most, runs atomic.Int32
	bad := errors.New("bad")
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer running.Add(-1)
				runs.Add(1)
				if i%50 == 0 {
					return fmt.Errorf("%w %d", bad, i)
				}
				tx.Set(fmt.Sprint(i), column, nil)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	err := l.Close()
	if n := strings.Count(fmt.Sprint(err), "bad"); n != 4 || !errors.Is(err, bad) {
		t.Errorf("%d failures: %v", n, err)
	}
	if runs.Load() != 200 || most.Load() > 4 {
		t.Errorf("%d runs, %d at once", runs.Load(), most.Load())
	}
	if err := l.Load(ctx, nil); !errors.Is(err, percolator.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 0
	for _, err := range s.Scan(ctx, percolator.Rows("t")) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 196 {
		t.Errorf("%d rows", n)
	}
}

// TestLoaderBackpressure: Load on a full loader blocks until a worker is free or the context
// ends.
func TestLoaderBackpressure(t *testing.T) {
	ctx, db, _ := open(t)
	l := db.Loader(percolator.LoaderConfig{Workers: 1, Queue: 1})
	started, release := make(chan struct{}, 3), make(chan struct{})
	stuck := func(context.Context, *percolator.Tx) error {
		started <- struct{}{}
		<-release
		return nil
	}
	if err := l.Load(ctx, stuck); err != nil {
		t.Fatal(err)
	}
	<-started
	if err := l.Load(ctx, stuck); err != nil { // waits in the queue
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := l.Load(short, stuck); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("did not block: %v", err)
	}
	close(release)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestClosed(t *testing.T) {
	ctx, db, _ := open(t)
	put(ctx, t, db, "a")
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Error(err)
	}
	_, begin := db.Begin(ctx)
	_, snapshot := db.Snapshot(ctx)
	for name, err := range map[string]error{
		"begin": begin, "snapshot": snapshot, "idle": db.WaitIdle(ctx),
		"transact": db.Transact(ctx, nil),
		"create":   db.CreateTable(ctx, percolator.TableSpec{Name: "x"}),
	} {
		if !errors.Is(err, percolator.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := handle.Client(db).Timestamp(ctx); err != nil {
		t.Errorf("the node's client is closed: %v", err)
	}
}

func TestTables(t *testing.T) {
	ctx, db, _ := open(t)
	for _, spec := range []percolator.TableSpec{{Name: "b", SplitKeys: []string{"k"}}, {Name: "b"},
		{Name: "a"}} {
		if err := db.CreateTable(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.DropTable(ctx, "a"); err != nil {
		t.Error(err)
	}
	if err := db.DropTable(ctx, "a"); !errors.Is(err, percolator.ErrNoTable) {
		t.Error(err)
	}
	tables, err := db.Tables(ctx)
	if err != nil || len(tables) != 2 || tables[0].Name != "b" ||
		!slices.Equal(tables[0].SplitKeys, []string{"k"}) {
		t.Errorf("%+v, %v", tables, err)
	}
	for _, name := range []string{"", "\xff", strings.Repeat("x", 256)} {
		err := db.CreateTable(ctx, percolator.TableSpec{Name: name})
		if !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRegistry(t *testing.T) {
	r := percolator.NewRegistry()
	run := func(context.Context, *percolator.Tx, percolator.Notification) error { return nil }
	r.Strong("one", column, run, percolator.Concurrency(3), percolator.Deadline(time.Second),
		percolator.MaxAttempts(2))
	r.Weak("two", percolator.Column{Table: "t", Name: "w"}, run)
	r.Strong("also one", column, run) // a column may have several
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	o := r.Observers()
	if len(o) != 3 || o[0].Concurrency != 3 || o[0].Deadline != time.Second ||
		o[0].MaxAttempts != 2 || o[0].Weak ||
		!o[1].Weak || o[1].Concurrency != percolator.DefaultConcurrency {
		t.Errorf("%+v", o)
	}
	r.Strong("one", percolator.Column{Table: "t", Name: "x"}, run)
	r.Weak("three", column, run)
	r.Strong("", percolator.Column{Name: "y"}, nil)
	r.Weak("four", percolator.Column{Table: "t", Name: "z"}, run, percolator.Concurrency(0))
	if n := strings.Count(fmt.Sprint(r.Err()), "observer \""); n != 6 ||
		!errors.Is(r.Err(), percolator.ErrInvalid) {
		t.Errorf("%d faults: %v", n, r.Err())
	}
	if len(r.Observers()) != 3 {
		t.Errorf("%+v", r.Observers())
	}
	if percolator.DBFrom(handle.WithDB(context.Background(), nil)) != nil {
		t.Error("DBFrom returned a handle without a database")
	}
	if percolator.DBFrom(context.Background()) != nil {
		t.Error("DBFrom returned a handle outside an observer")
	}
}

func TestJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string {
				return string(b)
			}))
		in := percolator.Cell{
			CellKey: percolator.CellKey{
				Row:    text.Draw(t, "row"),
				Column: percolator.Column{Table: "t", Name: text.Draw(t, "name")},
			},
			Value:    []byte(text.Draw(t, "value")),
			CommitTS: percolator.Timestamp(rapid.Uint64().Draw(t, "ts")),
		}
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out percolator.Cell
		if err := json.Unmarshal(data, &out); err != nil {
			t.Fatal(err)
		}
		if out.CellKey != in.CellKey || string(out.Value) != string(in.Value) ||
			out.CommitTS != in.CommitTS {
			t.Fatalf("%s: %+v", data, out)
		}
	})
	data, _ := json.Marshal(percolator.CellKey{Row: "\xff", Column: column})
	if want := `{"row":{"base64":"/w=="},"column":{"table":"t","name":"c"}}`; string(data) != want {
		t.Errorf("%s, want %s", data, want)
	}
}

func TestTimestamp(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	if ts := percolator.Timestamp(at.UnixMilli()<<18 + 5); !ts.Time().Equal(at) {
		t.Errorf("%v", ts.Time())
	}
}

// TestRegistryTables: the registry keeps the order of tables, copies their split keys, adds those
// of a table that is registered again, and reports invalid ones.
func TestRegistryTables(t *testing.T) {
	r := percolator.NewRegistry()
	keys := []string{"m"}
	r.Table(percolator.TableSpec{Name: "people", SplitKeys: keys})
	r.Table(percolator.TableSpec{Name: "places"})
	keys[0] = "x"
	got := r.Tables()
	if len(got) != 2 || got[0].SplitKeys[0] != "m" || got[1].Name != "places" || r.Err() != nil {
		t.Fatalf("%v, %v", got, r.Err())
	}
	r.Table(percolator.TableSpec{Name: "people", SplitKeys: []string{"d", "m"}})
	if got := r.Tables(); len(got) != 2 || !slices.Equal(got[0].SplitKeys, []string{"d", "m"}) ||
		r.Err() != nil {
		t.Errorf("%v, %v", got, r.Err())
	}
	r.Table(percolator.TableSpec{})
	if err := r.Err(); !errors.Is(err, percolator.ErrInvalid) ||
		!strings.Contains(err.Error(), "no name") || len(r.Tables()) != 2 {
		t.Errorf("%v", err)
	}
}

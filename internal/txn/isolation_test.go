package txn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// number reads a row as a number; 0 if it does not exist.
func number(ctx context.Context, r txn.Reader, row string) (int, error) {
	v, _, err := r.Get(ctx, key(row))
	if err != nil || len(v) == 0 {
		return 0, err
	}
	return strconv.Atoi(string(v))
}

func setNumber(t *txn.Txn, row string, n int) { t.Set(key(row), []byte(strconv.Itoa(n))) }

// accounts are rows in all three tablets.
func accounts(n int) (rows []string) {
	for i := range n {
		rows = append(rows, fmt.Sprintf("%c%d", "ahz"[i%3], i))
	}
	return rows
}

// badLink delays operations, loses some and some replies, and delivers second copies of some later.
func badLink(seed uint64) func(*pb.TabletRequest) txntest.Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, seed))
	return func(*pb.TabletRequest) txntest.Fault {
		mu.Lock()
		defer mu.Unlock()
		d, n := time.Duration(rng.Int64N(int64(5*time.Millisecond))), rng.IntN(20)
		return txntest.Fault{
			Before: func(ctx context.Context) { _ = txn.Sleep(ctx, d) },
			Twice:  n < 4, Reply: n == 4, NotSent: n == 5,
		}
	}
}

// TestBank moves money between accounts while tablets split, messages are duplicated and replies
// lost, and checks in snapshots that the sum never changes. Every transfer happens once.
func TestBank(t *testing.T) { synctest.Test(t, testBank) }

func testBank(t *testing.T) {
	const start, workers, transfers = 100, 8, 60
	w := newWorld(t)
	rows := accounts(9)
	first, _ := w.client(txn.Config{})
	if _, err := first.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		for _, row := range rows {
			setNumber(tx, row, start)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var wg, watch sync.WaitGroup
	var done atomic.Bool
	for n := range workers {
		c, p := w.client(txn.Config{})
		p.Inject(badLink(uint64(n)))
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for i := range transfers {
				from, to := rows[rng.IntN(len(rows))], rows[rng.IntN(len(rows))]
				count := txn.Key{Table: "t", Row: from, Column: fmt.Sprintf("made%d", n)}
				if err := transfer(w.ctx, c, from, to, 1+rng.IntN(20), count); err != nil {
					t.Errorf("transfer: %v", err)
					return
				}
				if i%20 == 0 {
					w.Split(w.table, rows[rng.IntN(len(rows))])
				}
			}
		})
	}
	for range 2 {
		c, _ := w.client(txn.Config{})
		watch.Go(func() {
			for !done.Load() && txn.Sleep(w.ctx, time.Millisecond) == nil {
				if sum, err := total(w.ctx, c); err != nil || sum != start*len(rows) {
					t.Errorf("the sum is %d, want %d (%v)", sum, start*len(rows), err)
					return
				}
			}
		})
	}
	wg.Wait()
	done.Store(true)
	watch.Wait()
	<-time.After(txntest.MaxLate)
	made := 0
	s, err := first.Snapshot(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for n := range workers {
		for cell, err := range s.Scan(w.ctx, txn.ScanSpec{Table: "t", Columns: []string{fmt.Sprintf("made%d", n)}}) {
			if err != nil {
				t.Fatal(err)
			}
			count, _ := strconv.Atoi(string(cell.Value))
			made += count
		}
	}
	if made != workers*transfers {
		t.Errorf("%d transfers were made, want %d", made, workers*transfers)
	}
}

// transfer moves money if there is enough, and counts the request in its cell.
func transfer(ctx context.Context, c *txn.Client, from, to string, amount int, count txn.Key) error {
	_, err := c.Run(ctx, txn.Options{Name: "transfer"},
		func(ctx context.Context, tx *txn.Txn) error {
			a, err := number(ctx, tx, from)
			if err != nil {
				return err
			}
			made, _, err := tx.Get(ctx, count)
			if err != nil {
				return err
			}
			n, _ := strconv.Atoi(string(made))
			tx.Set(count, []byte(strconv.Itoa(n+1)))
			if a < amount || from == to {
				return nil
			}
			b, err := number(ctx, tx, to)
			if err != nil {
				return err
			}
			setNumber(tx, from, a-amount)
			setNumber(tx, to, b+amount)
			return nil
		})
	return err
}

func total(ctx context.Context, c *txn.Client) (sum int, err error) {
	s, err := c.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	for cell, err := range s.Scan(ctx, txn.ScanSpec{Table: "t", Columns: []string{"c"}}) {
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(string(cell.Value))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// TestNoLostUpdate: increments from many processes all count, in one phase and in two.
func TestNoLostUpdate(t *testing.T) {
	for way, rows := range ways {
		const workers, each = 8, 25
		w := newWorldOf(t, way)
		var wg sync.WaitGroup
		for range workers {
			c, _ := w.client(txn.Config{})
			wg.Go(func() {
				for range each {
					if _, err := c.Run(w.ctx, txn.Options{},
						func(ctx context.Context, tx *txn.Txn) error {
							for _, row := range rows {
								n, err := number(ctx, tx, row)
								if err != nil {
									return err
								}
								setNumber(tx, row, n+1)
							}
							return nil
						}); err != nil {
						t.Errorf("%s: %v", way, err)
					}
				}
			})
		}
		wg.Wait()
		c, _ := w.client(txn.Config{})
		for _, row := range rows {
			if got := w.get(c, row); got != strconv.Itoa(workers*each) {
				t.Errorf("%s: lost updates: %s is %s, want %d", way, row, got, workers*each)
			}
		}
	}
}

// TestWriteSkew: snapshot isolation allows two transactions that read each other's rows to commit
// (§2.2).
func TestWriteSkew(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	w.set(c, "1", "a", "z")
	one, two := w.begin(c), w.begin(c)
	for _, tx := range []*txn.Txn{one, two} {
		if w.read(tx, "a") != "1" || w.read(tx, "z") != "1" {
			t.Fatal("not the snapshot")
		}
	}
	one.Set(key("a"), []byte("0"))
	two.Set(key("z"), []byte("0"))
	_, err1 := one.Commit(w.ctx)
	_, err2 := two.Commit(w.ctx)
	if err1 != nil || err2 != nil {
		t.Errorf("%v, %v", err1, err2)
	}
}

// TestNoLongFork: two writers of one row each; no two readers see them in opposite
// orders, because snapshots are totally ordered.
func TestNoLongFork(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for _, row := range []string{"a", "z"} {
		c, _ := w.client(txn.Config{})
		wg.Go(func() {
			for i := range 100 {
				w.set(c, strconv.Itoa(i), row)
			}
		})
	}
	type seen struct{ a, z int }
	var mu sync.Mutex
	var all []seen
	for range 4 {
		c, _ := w.client(txn.Config{})
		wg.Go(func() {
			for range 100 {
				s, err := c.Snapshot(w.ctx)
				if err != nil {
					t.Error(err)
					return
				}
				a, err1 := number(w.ctx, s, "a")
				z, err2 := number(w.ctx, s, "z")
				if err := errors.Join(err1, err2); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all = append(all, seen{a, z})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i, x := range all {
		for _, y := range all[:i] {
			if (x.a < y.a && x.z > y.z) || (x.a > y.a && x.z < y.z) {
				t.Fatalf("long fork: %+v and %+v", x, y)
			}
		}
	}
}

// TestSnapshotStable: repeated reads of a snapshot are equal while writers write and tablets split.
func TestSnapshotStable(t *testing.T) {
	w := newWorld(t)
	rows := accounts(12)
	c, _ := w.client(txn.Config{ReadCacheBytes: 1}) // no cache: every read is sent to a tablet
	w.set(c, "0", rows...)
	s, err := c.Snapshot(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var done atomic.Bool
	for range 3 {
		other, _ := w.client(txn.Config{})
		wg.Go(func() {
			for i := 0; !done.Load(); i++ {
				w.set(other, "1", rows[i%len(rows)], rows[(i+1)%len(rows)])
			}
		})
	}
	for i := range 40 {
		w.Split(w.table, rows[i%len(rows)])
		for _, row := range rows {
			if got := w.read(s, row); got != "0" {
				t.Errorf("%s changed to %q", row, got)
			}
		}
		n := 0
		for cell, err := range s.Scan(w.ctx, txn.ScanSpec{Table: "t", Reverse: i%2 == 0}) {
			if err != nil || string(cell.Value) != "0" {
				t.Errorf("scan: %q, %v", cell.Value, err)
			}
			n++
		}
		if n != len(rows) {
			t.Errorf("scan: %d of %d rows", n, len(rows))
		}
	}
	done.Store(true)
	wg.Wait()
}

// TestFailedReadSticks: a transaction whose function swallows a failed read cannot commit.
func TestFailedReadSticks(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "1", "a")
	for name, read := range map[string]func(*txn.Txn) error{
		"get": func(tx *txn.Txn) error {
			_, _, err := tx.Get(w.ctx, key("a"))
			return err
		},
		"multi": func(tx *txn.Txn) error {
			_, err := tx.GetMulti(w.ctx, []txn.Key{key("a"), key("z")})
			return err
		},
		"scan": func(tx *txn.Txn) (err error) {
			for _, err = range tx.Scan(w.ctx, txn.ScanSpec{Table: "t"}) {
			}
			return err
		},
	} {
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if req.GetGet() != nil || req.GetScan() != nil {
				return txntest.Fault{
					Answer: &pb.Error{Code: pb.Error_CODE_INVALID, Message: "injected"},
				}
			}
			return txntest.Fault{}
		})
		tx := w.begin(c)
		if read(tx) == nil {
			t.Errorf("%s: no error", name)
		}
		tx.Set(key("b"), []byte("x"))
		if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrInvalid) {
			t.Errorf("%s: committed after a failed read: %v", name, err)
		}
		p.Inject(nil)
		if got := w.get(c, "b"); got != "-" {
			t.Errorf("%s: written: %q", name, got)
		}
	}
}

// TestOverloadedIsRetried: Run waits according to the server's hint and runs again; a transaction
// from Begin returns the error.
func TestOverloadedIsRetried(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	var n atomic.Int32
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetOnePhase() != nil && n.Add(1) <= 3 {
			return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_OVERLOADED, RetryAfterMs: 1}}
		}
		return txntest.Fault{}
	})
	if runs, err := w.attempt(c, "v", []string{"a"}); err != nil || runs != 4 {
		t.Errorf("%d runs, %v; want 4 and no error", runs, err)
	}
	n.Store(0)
	tx := w.begin(c)
	tx.Set(key("a"), nil)
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrOverloaded) {
		t.Error(err)
	}
}

// TestContextEndsRetries: if the context ends during the retries of a transaction, Run returns the
// context's error and no unknown outcome.
func TestContextEndsRetries(t *testing.T) {
	w := newWorld(t)
	release := w.hold(txn.Config{}, threeRows...)
	c, _ := w.client(txn.Config{})
	ctx, cancel := context.WithCancel(w.ctx)
	runs := 0
	_, err := c.Run(ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		if runs++; runs == 3 {
			defer cancel()
		}
		tx.Set(key("a"), nil)
		return nil
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, txn.ErrCommitUnknown) {
		t.Errorf("%v, want context.Canceled and not ErrCommitUnknown", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

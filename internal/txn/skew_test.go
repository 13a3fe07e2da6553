package txn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// guard is what a transaction does to a cell that it relies on.
type guard func(*txn.Txn, txn.Key)

func unguarded(*txn.Txn, txn.Key) {}

// skewed begins a transaction that reads both rows, writes one, and guards the other.
func (w *world) skewed(c *txn.Client, reads, writes string, g guard) *txn.Txn {
	w.t.Helper()
	tx, err := c.Begin(w.ctx, txn.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.read(tx, reads)
	w.read(tx, writes)
	g(tx, key(reads))
	tx.Set(key(writes), []byte("off"))
	return tx
}

// TestGuardedSkew runs two transactions that each read the row that the other writes. Their guards
// decide whether both commit.
func TestGuardedSkew(t *testing.T) {
	none, lock, validate := guard(unguarded), guard((*txn.Txn).Lock), guard((*txn.Txn).Validate)
	for name, test := range map[string]struct {
		first, second guard
		both          bool
	}{
		"unguarded":               {none, none, true},
		"the first locks":         {lock, none, false},
		"the second locks":        {none, lock, false},
		"both lock":               {lock, lock, false},
		"both validate":           {validate, validate, false},
		"the second validates":    {none, validate, false},
		"only the first does":     {validate, none, true}, // Validate alone does not exclude this
		"a lock and a validation": {lock, validate, false},
	} {
		// In one tablet, in two, and where the primary's tablet is not the first.
		for _, rows := range [][2]string{{"a", "b"}, {"a", "z"}, {"z", "a"}} {
			t.Run(name+" "+rows[0]+rows[1], func(t *testing.T) {
				w := newWorld(t)
				c, _ := w.client(txn.Config{})
				w.set(c, "on", rows[:]...)
				one := w.skewed(c, rows[0], rows[1], test.first)
				two := w.skewed(c, rows[1], rows[0], test.second)
				if _, err := one.Commit(w.ctx); err != nil {
					t.Fatalf("the first: %v", err)
				}
				_, err := two.Commit(w.ctx)
				refused := errors.Is(err, txn.ErrConflict) || errors.Is(err, txn.ErrLocked)
				if (err == nil) != test.both || (err != nil && !refused) {
					t.Errorf("the second: %v; both are to commit: %t", err, test.both)
				}
				on := w.get(c, rows[0]) == "on" || w.get(c, rows[1]) == "on"
				if on == test.both {
					t.Errorf("one of them is on: %t", on)
				}
			})
		}
	}
}

// TestLockChangesNothing: Lock changes neither the cell's value nor its versions, and notifies no
// observer.
func TestLockChangesNothing(t *testing.T) {
	for _, rows := range [][2]string{{"a", "b"}, {"a", "z"}} {
		w := newWorld(t)
		w.Observe(w.table, "c", mvcc.ObservedStrong)
		c, _ := w.client(txn.Config{})
		w.set(c, "before", rows[1])
		was := w.notifications()
		for range 3 {
			if _, err := c.Run(w.ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
				tx.Set(txn.Key{Table: "t", Row: rows[0], Column: "plain"}, []byte("v"))
				tx.Lock(key(rows[1]))
				if v, ok, err := tx.Get(ctx, key(rows[1])); string(v) != "before" || !ok || err != nil {
					t.Errorf("a locked cell is read as %q, %v, %v", v, ok, err)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		c.Flush()
		if now := w.notifications(); fmt.Sprint(now) != fmt.Sprint(was) {
			t.Errorf("notifications were %v and are %v", was, now)
		}
		w.Look(func(v *mvcctest.MemView) {
			entries := map[mvcc.Group]int{}
			for _, e := range v.Row(w.table, rows[1]) {
				entries[e.Group]++
			}
			if entries[mvcc.GroupWrite] != 1 || entries[mvcc.GroupLocked] != 1 || len(entries) != 3 {
				t.Errorf("the row holds %v", entries) // the third is its notification
			}
		})
	}
}

// TestGuardsWithoutWrites: a transaction without writes commits at its start, whatever it guards.
func TestGuardsWithoutWrites(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "v", "a", "z")
	tx, err := c.Begin(w.ctx, txn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.read(tx, "a")
	tx.Lock(key("a"))
	tx.Validate(key("z"))
	w.set(c, "new", "a", "z")
	sent := p.Sent()
	if ts, err := tx.Commit(w.ctx); err != nil || ts != tx.StartTS() || p.Sent() != sent {
		t.Errorf("committed at %d, started at %d, %d messages: %v", ts, tx.StartTS(),
			p.Sent()-sent, err)
	}
}

// TestGuardsOfNotifications: a transaction that only notifies is refused, and notifies nothing, if
// a guarded cell has changed since its start.
func TestGuardsOfNotifications(t *testing.T) {
	for name, g := range map[string]guard{
		"lock": (*txn.Txn).Lock, "validate": (*txn.Txn).Validate, "none": unguarded,
	} {
		for _, changed := range []bool{false, true} {
			w := newWorld(t)
			w.Observe(w.table, "weak", mvcc.ObservedWeak)
			c, _ := w.client(txn.Config{})
			w.set(c, "on", "a")
			tx := w.begin(c)
			w.read(tx, "a")
			g(tx, key("a"))
			tx.Notify(weak("z"))
			if changed {
				w.set(c, "off", "a")
			}
			_, err := tx.Commit(w.ctx)
			refused := changed && name != "none"
			if refused != errors.Is(err, txn.ErrConflict) || !refused && err != nil {
				t.Errorf("%s, changed %v: %v", name, changed, err)
			}
			if told := len(w.notifications()); refused != (told == 0) {
				t.Errorf("GUARD-DROPPED: %s, changed %v: %d notifications", name, changed, told)
			}
		}
	}
}

// TestGuardsOfOneCell: a write supersedes a lock, and a lock a validation, in any order.
func TestGuardsOfOneCell(t *testing.T) {
	set := guard(func(tx *txn.Txn, k txn.Key) { tx.Set(k, []byte("mine")) })
	for name, order := range map[string][]guard{
		"set, lock":           {set, (*txn.Txn).Lock},
		"lock, set, validate": {(*txn.Txn).Lock, set, (*txn.Txn).Validate},
		"validate, set":       {(*txn.Txn).Validate, set},
	} {
		w := newWorld(t)
		c, _ := w.client(txn.Config{})
		if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			for _, g := range order {
				g(tx, key("a"))
			}
			if got := w.read(tx, "a"); got != "mine" {
				t.Errorf("%s: the transaction reads %q", name, got)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got := w.get(c, "a"); got != "mine" {
			t.Errorf("%s: %q is written", name, got)
		}
	}
}

// TestLockOfWeakColumn: a Lock of a weak column's cell is refused with ErrNotifyOnly.
func TestLockOfWeakColumn(t *testing.T) {
	for _, row := range []string{"a", "z"} {
		w := newWorld(t)
		w.Observe(w.table, "weak", mvcc.ObservedWeak)
		c, _ := w.client(txn.Config{})
		_, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			tx.Set(key("a"), []byte("v"))
			tx.Lock(weak(row))
			return nil
		})
		if !errors.Is(err, txn.ErrNotifyOnly) {
			t.Errorf("row %s: %v", row, err)
		}
	}
}

// TestValidateAfterLocks: a transaction that commits while the validating one places its locks is
// detected, so the validation must come after them.
func TestValidateAfterLocks(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	other, _ := w.client(txn.Config{})
	w.set(c, "on", "a", "z")
	one := w.skewed(c, "a", "z", (*txn.Txn).Validate)
	two := w.skewed(other, "z", "a", (*txn.Txn).Validate)
	var once sync.Once
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetPrewrite() == nil {
			return txntest.Fault{}
		}
		return txntest.Fault{Before: func(ctx context.Context) {
			once.Do(func() {
				if _, err := two.Commit(ctx); err != nil {
					t.Errorf("the other one, which encountered no lock: %v", err)
				}
			})
		}}
	})
	if _, err := one.Commit(w.ctx); !errors.Is(err, txn.ErrConflict) {
		t.Errorf("the commit ended with %v", err)
	}
}

// TestValidateAgain: after COMMIT_TS_TOO_LOW a primary's commit is resent with a later timestamp
// only if no validated cell has changed up to it. Catches BROKEN=validate_once.
func TestValidateAgain(t *testing.T) {
	for _, changed := range []bool{false, true} {
		w := newWorld(t)
		c, p := w.client(txn.Config{})
		other, _ := w.client(txn.Config{})
		w.set(c, "on", "a", "z")
		one := w.skewed(c, "a", "z", (*txn.Txn).Validate)
		two := w.skewed(other, "z", "a", unguarded)
		var once sync.Once
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if commit := req.GetCommit(); commit != nil {
				once.Do(func() {
					commit.CommitTs = commit.StartTs
					if !changed {
						return
					}
					if _, err := two.Commit(w.ctx); err != nil {
						t.Errorf("the other one, which encountered no lock: %v", err)
					}
				})
			}
			return txntest.Fault{}
		})
		_, err := one.Commit(w.ctx)
		if !changed && err != nil {
			t.Errorf("nothing has changed: %v", err)
		}
		if changed && !errors.Is(err, txn.ErrConflict) {
			t.Errorf("SKEW: a validated cell has changed, and the commit ended with %v", err)
		}
	}
}

// TestValidateNeverWaits: a lock of a live transaction fails the commit at once, without leaving
// anything.
func TestValidateNeverWaits(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	other, p := w.client(txn.Config{TwoPhaseOnly: true})
	w.set(c, "on", "a", "z")
	one := w.skewed(c, "a", "b", (*txn.Txn).Validate)
	var met error
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetCommit() == nil {
			return txntest.Fault{}
		}
		return txntest.Fault{Before: func(context.Context) {
			if met == nil {
				_, met = one.Commit(w.ctx)
			}
		}}
	})
	w.set(other, "off", "a", "z")
	if !errors.Is(met, txn.ErrLocked) {
		t.Errorf("the commit that encountered the lock ended with %v", met)
	}
	c.Flush()
	other.Flush()
	if n := w.Locks(w.table); n != 0 || w.get(c, "b") != "-" {
		t.Errorf("%d locks are left, b is %q", n, w.get(c, "b"))
	}
}

// TestSkewUnderFaults keeps one doctor of each pair on call, while tablets split, messages are
// duplicated and replies lost.
func TestSkewUnderFaults(t *testing.T) {
	lock, validate := guard((*txn.Txn).Lock), guard((*txn.Txn).Validate)
	for name, guards := range map[string][2]guard{
		"one locks": {lock, unguarded}, "both validate": {validate, validate},
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			w := newWorld(t)
			var wg sync.WaitGroup
			for n := range 6 {
				c, p := w.client(txn.Config{})
				p.Inject(badLink(uint64(n)))
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(2, uint64(n)))
					for i := range 150 {
						pair := rng.IntN(3)
						rows := [2]string{fmt.Sprintf("a%d", pair), fmt.Sprintf("%c%d", "ahz"[pair], pair+5)}
						if err := onCall(w.ctx, c, rows, rng.IntN(2), guards); err != nil {
							t.Errorf("%v", err)
							return
						}
						if i%40 == 0 {
							w.Split(w.table, rows[1])
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// onCall makes the doctor go off call if the other one is on, and on call otherwise.
func onCall(ctx context.Context, c *txn.Client, rows [2]string, me int, guards [2]guard) error {
	_, err := c.Run(ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
		mine, err := number(ctx, tx, rows[me])
		if err != nil {
			return err
		}
		others, err := number(ctx, tx, rows[1-me])
		switch {
		case err != nil:
			return err
		case mine == 1 && others == 1: // 0 is on call
			return fmt.Errorf("nobody of %v is on call at %d", rows, tx.StartTS())
		case mine == 0 && others == 0:
			guards[me](tx, key(rows[1-me]))
			setNumber(tx, rows[me], 1)
		case mine == 1:
			setNumber(tx, rows[me], 0)
		}
		return nil
	})
	return err
}

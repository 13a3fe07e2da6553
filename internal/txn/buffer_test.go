package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

const (
	writers    = 8
	writesEach = 200
)

// writerRow returns the row of a writer's write; in a world's table they are in all three tablets.
func writerRow(writer, n int) string { return fmt.Sprintf("%c%d-%03d", "ahz"[n%3], writer, n) }

// logged is a log that tests read concurrently.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// dropped counts the warnings about dropped writes.
func (l *logged) dropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "a write was dropped")
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestConcurrentWrites: all concurrent writes to one transaction are committed, also during reads
// through it and while the table's id is unknown.
func TestConcurrentWrites(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	if _, err := c.Run(w.ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
		var wg sync.WaitGroup
		for g := range writers {
			wg.Go(func() {
				for n := range writesEach {
					row := writerRow(g, n)
					switch tx.Set(key(row), []byte(row)); {
					case n%50 == 7:
						if got := w.read(tx, row); got != row {
							t.Errorf("%s: read %q", row, got)
						}
					case n%100 == 9:
						for _, err := range tx.Scan(ctx, txn.ScanSpec{Table: "t"}) {
							if err != nil {
								t.Error(err)
							}
						}
					}
				}
			})
		}
		wg.Wait()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for g := range writers {
		for n := range writesEach {
			if row := writerRow(g, n); w.get(c, row) != row {
				t.Fatalf("%s is lost", row)
			}
		}
	}
}

// TestWritesRaceCommit: after a race of writes with the commit, the commit has failed, or every
// write is stored, or the log names the dropped ones.
func TestWritesRaceCommit(t *testing.T) {
	w := newWorld(t)
	var log logged
	outcomes := map[string]int{}
	for round := range 30 {
		c, _ := w.client(txn.Config{Logger: log.logger()}) // each may warn once
		tx, err := c.Begin(w.ctx, txn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var done atomic.Int64
		begun, warned := make(chan struct{}), log.dropped()
		for g := range writers {
			wg.Go(func() {
				for n := range writesEach {
					tx.Set(key(writerRow(g, n)+fmt.Sprint(" ", round)), []byte("v"))
					if done.Add(1) == int64(round)*30+1 {
						close(begun)
					}
				}
			})
		}
		<-begun
		_, err = tx.Commit(w.ctx)
		wg.Wait()
		there := 0
		for g := range writers {
			for n := range writesEach {
				if w.get(c, writerRow(g, n)+fmt.Sprint(" ", round)) != "-" {
					there++
				}
			}
		}
		switch {
		case err != nil && (!errors.Is(err, txn.ErrInvalid) || there > 0):
			t.Errorf("round %d: %d writes are there after %v", round, there, err)
		case err != nil:
			outcomes["failed"]++
		case there == writers*writesEach:
			outcomes["all"]++
		case log.dropped() == warned:
			t.Errorf("round %d: of %d writes %d are there, and nobody was told", round,
				writers*writesEach, there)
		default:
			outcomes["warned"]++
		}
	}
	t.Log(outcomes)
}

// TestLateWriteBesideLocks: a write during the prewrites of a transaction that prewrites all of its
// tablets fails the commit.
func TestLateWriteBesideLocks(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{TwoPhaseOnly: true})
	tx := w.begin(c)
	tx.Set(key("a"), []byte("v"))
	tx.Set(key("z"), []byte("v"))
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetPrewrite() != nil {
			tx.Set(key("late"), []byte("v"))
		}
		return txntest.Fault{}
	})
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrInvalid) {
		t.Errorf("a commit without a write that came before it was sent: %v", err)
	}
	c.Flush()
	if n := w.Locks(w.table); n != 0 {
		t.Errorf("%d locks have stayed", n)
	}
}

// TestLateWrite: a write during the commit fails it until the deciding message is sent; later, and
// after the end, it is dropped with a warning. After a rollback there is no warning.
func TestLateWrite(t *testing.T) {
	w := newWorld(t)
	var log logged
	late := func(tx *txn.Txn) { tx.Set(key("late"), []byte("v")) }
	commit := func(rows []string, inject func(tx *txn.Txn, req *pb.TabletRequest)) error {
		c, p := w.client(txn.Config{Logger: log.logger()})
		tx, err := c.Begin(w.ctx, txn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			tx.Set(key(row), []byte("v"))
		}
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			inject(tx, req)
			return txntest.Fault{}
		})
		_, err = tx.Commit(w.ctx)
		p.Inject(nil)
		late(tx)
		c.Flush()
		return err
	}

	err := commit([]string{"a1", "h1"}, func(tx *txn.Txn, req *pb.TabletRequest) {
		if req.GetPrewrite() != nil {
			late(tx)
		}
	})
	if !errors.Is(err, txn.ErrInvalid) || log.dropped() != 0 {
		t.Errorf("overtaken during the prewrite: %v, %d warnings", err, log.dropped())
	}
	c, _ := w.client(txn.Config{Logger: log.logger()})
	if got := w.get(c, "a1"); got != "-" {
		t.Errorf("half of it was committed: %q", got)
	}
	if w.Locks(w.table) != 0 {
		t.Error("its locks have stayed")
	}

	err = commit([]string{"a2", "h2"}, func(tx *txn.Txn, req *pb.TabletRequest) {
		if req.GetCommit() != nil {
			late(tx)
		}
	})
	if err != nil || log.dropped() != 1 {
		t.Errorf("overtaken when the commit was sent: %v, %d warnings", err, log.dropped())
	}
	nothing := func(*txn.Txn, *pb.TabletRequest) {}
	if err = commit([]string{"a3"}, nothing); err != nil || log.dropped() != 2 {
		t.Errorf("a write after the end: %v, %d warnings", err, log.dropped())
	}
	if err = commit(nil, nothing); err != nil || log.dropped() != 3 {
		t.Errorf("a write after a commit of nothing: %v, %d warnings", err, log.dropped())
	}
	tx, err := c.Begin(w.ctx, txn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(w.ctx); err != nil {
		t.Fatal(err)
	}
	late(tx)
	tx.SetCell(mvcc.Cell{Table: w.table, Row: "late"}, nil)
	_, _, err = tx.Get(w.ctx, key("late"))
	if !errors.Is(err, txn.ErrTxDone) || log.dropped() != 3 {
		t.Errorf("a write after a rollback: %v, %d warnings", err, log.dropped())
	}
	if got := w.get(c, "late"); got != "-" {
		t.Errorf("a late write was committed: %q", got)
	}
}

package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/workload"
)

const fedTable = "fed"

var fedRows = percolator.Rows(fedTable)

// feedWriters starts writers that end with ctx; wait waits for them. They write single rows, rows
// of several tablets in one transaction, two columns of a row, deletes and long values.
// Transactions may fail.
func feedWriters(ctx context.Context, dbs []*percolator.DB, rows int) (wait func()) {
	var wg sync.WaitGroup
	for w := range 4 {
		rng := rand.New(rand.NewPCG(uint64(w), 7))
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
				_ = dbs[w%len(dbs)].Transact(attempt, func(_ context.Context, tx *percolator.Tx) error {
					for range 1 + rng.IntN(3)*rng.IntN(2) {
						row := fmt.Sprintf("%03d", rng.IntN(rows))
						col := percolator.Column{Table: fedTable, Name: string(rune('a' + rng.IntN(2)))}
						switch rng.IntN(8) {
						case 0:
							tx.Delete(row, col)
						case 1:
							tx.Set(row, col, make([]byte, 2000))
						default:
							tx.Set(row, col, fmt.Appendf(nil, "%d/%d", w, i))
						}
					}
					return nil
				})
				cancel()
			}
		})
	}
	return wg.Wait
}

// TestChangesUnderFaults: the feed, applied to an empty map, equals a snapshot at each of its
// resolved timestamps, in order and once, while tablets split and merge, leaders change and a
// node that leads some dies.
func TestChangesUnderFaults(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r := three(ctx, t, 1, nil)
	db := r.nodes[0].DB()
	err := db.CreateTable(ctx, percolator.TableSpec{Name: fedTable, SplitKeys: []string{"050"}})
	if err != nil {
		t.Fatal(err)
	}
	r.spread(ctx, 3)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	wait := feedWriters(writing, r.handles()[:2], 100)
	checked := make(chan error, 1)
	check := workload.ChangeCheck{Once: true}
	var faultsDone sync.WaitGroup
	faultsDone.Add(1)
	go func() { checked <- checkFeed(ctx, db, &check, 0, &faultsDone) }()
	for i, step := range []func(){
		func() { _ = db.Admin().SplitTablet(ctx, fedTable, "025") },
		func() {
			for i, d := range r.tablets(ctx) {
				r.lead(ctx, d.TabletId, 1+i%2)
			}
		},
		func() { _ = db.Admin().SplitTablet(ctx, fedTable, "075") },
		func() { _, _ = db.Admin().MergeTablets(ctx, fedTable, "025") },
		func() { r.crash(2) },
		func() { r.start(2) },
	} {
		step()
		select {
		case <-time.After(400 * time.Millisecond):
		case err := <-checked:
			t.Fatalf("at step %d: %v", i, err)
		}
	}
	stop()
	wait()
	faultsDone.Done()
	if err := <-checked; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d changes, %d snapshots", check.Applied, check.Compared)
}

// checkFeed reads the feed from a timestamp on and compares it at most every 20 ms, until end is
// done and everything committed by then has been compared.
func checkFeed(ctx context.Context, db *percolator.DB, check *workload.ChangeCheck, from percolator.Timestamp,
	end *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		end.Wait()
		close(done)
	}()
	var last percolator.Timestamp // everything up to it is to be seen
	var compared time.Time
	for c, err := range db.Changes(ctx, from, fedRows) {
		if err != nil {
			return err
		}
		if err := check.Apply(c); err != nil {
			return err
		}
		if c.Resolved == 0 {
			continue
		}
		select {
		case <-done:
			if last == 0 {
				err := db.View(ctx, func(_ context.Context, s *percolator.Snapshot) error {
					last = s.StartTS()
					return nil
				})
				if err != nil {
					return err
				}
			}
		default:
		}
		ends := last != 0 && c.Resolved >= last
		if ends || time.Since(compared) > 20*time.Millisecond {
			if err := check.Compare(ctx, db, fedRows); err != nil {
				return err
			}
			compared = time.Now()
		}
		if ends {
			return nil
		}
	}
	return errors.New("the feed has ended")
}

package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
)

var element = percolator.Column{Table: Table, Name: "element"}

// maxElements bounds a run's set: it is read whole.
const maxElements = 5000

// Set has workers add elements to a set and read all of it: a read returns every element whose
// addition was acknowledged before the read began, every element that an earlier read has
// returned, and no element that was never added.
func Set(ctx context.Context, db *percolator.DB, l Load) error {
	run, err := newRun(ctx, db)
	if err != nil {
		return err
	}
	s := &elements{run: "set" + run, began: time.Now(), state: map[int]*elementState{}}
	err = l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		db := l.db(db, worker)
		if rng.IntN(8) == 0 {
			return s.read(ctx, db)
		}
		return s.add(ctx, db)
	})
	return errors.Join(err, patiently(ctx, func() error { return s.read(ctx, db) }))
}

// elements is the history of the set.
type elements struct {
	run   string
	began time.Time

	mu    sync.Mutex
	last  int
	state map[int]*elementState // of each element that somebody has tried to add
}

// elementState is what is known of one element.
type elementState struct {
	refused bool          // surely not added
	since   time.Duration // reads that begin later must return it; 0: not known
}

// add adds a new element.
func (s *elements) add(ctx context.Context, db *percolator.DB) error {
	s.mu.Lock()
	if s.last >= maxElements {
		s.mu.Unlock()
		return s.read(ctx, db)
	}
	s.last++
	n, state := s.last, &elementState{}
	s.state[n] = state
	s.mu.Unlock()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(row(s.run, n), element, []byte("x"))
		return nil
	}, percolator.Name("set add"))
	done, unknown := outcome(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	state.refused = !done && !unknown
	if done && state.since == 0 {
		state.since = time.Since(s.began)
	}
	return err
}

// read reads the set and compares.
func (s *elements) read(ctx context.Context, db *percolator.DB) error {
	began := time.Since(s.began)
	snap, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snap.Close() }()
	found := map[int]bool{}
	for cell, err := range snap.Scan(ctx, percolator.Rows(Table), element) {
		if err != nil {
			return err
		}
		if _, mine, ok := strings.Cut(cell.Row, "/"+s.run+"/"); ok {
			n, err := strconv.Atoi(mine)
			if err != nil || found[n] {
				return fmt.Errorf("workload: set: row %q is no element, or found twice", cell.Row)
			}
			found[n] = true
		}
	}
	return s.compare(found, began, snap.StartTS())
}

func (s *elements) compare(found map[int]bool, began time.Duration, at percolator.Timestamp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	for n, state := range s.state {
		switch {
		case !found[n] && state.since != 0 && state.since < began:
			return fmt.Errorf("workload: set: element %d was in the set at %v; a snapshot begun at %v, of %d, lacks it", n, state.since, began, at)
		case found[n] && state.refused:
			return fmt.Errorf("workload: set: element %d is in the set although its adding was refused", n)
		case found[n] && state.since == 0:
			state.since = now
		}
	}
	for n := range found {
		if s.state[n] == nil {
			return fmt.Errorf("workload: set: element %d was never added", n)
		}
	}
	return nil
}

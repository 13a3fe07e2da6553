package index

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// sim is a deterministic model of the observers' environment: snapshot isolation with notifications
// (§2.2, §2.4). A run reads everything when it starts; its commit is decided after any number of
// other runs, so every interleaving allowed by snapshot isolation can occur; some commit very late.
// Weak observers may have several concurrent runs. A run may process several rows of one observer.
type sim struct {
	rng       *rand.Rand
	batches   *rand.Rand // sizes of batches; nil: one row per run
	clock     uint64
	cells     map[percolator.CellKey][]version
	dirty     map[percolator.CellKey]uint64 // notifications by cell, with their newest timestamp
	acks      map[percolator.CellKey]uint64 // commit timestamp of the newest acknowledgment
	acked     map[percolator.CellKey]uint64 // its value: the start timestamp of that run
	observers map[percolator.Column]observer
	inflight  []*simTx
	runs      map[string]int
	conflicts int
}

type version struct {
	ts      uint64
	value   []byte
	deleted bool
}

type simTx struct {
	s        *sim
	start    uint64
	writes   map[percolator.CellKey]version
	notifies map[percolator.CellKey]bool
	triggers []percolator.CellKey // empty for a loader
	strong   bool
	slow     bool
}

func newSim(seed uint64) *sim {
	s := &sim{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		cells: map[percolator.CellKey][]version{}, dirty: map[percolator.CellKey]uint64{},
		acks: map[percolator.CellKey]uint64{}, acked: map[percolator.CellKey]uint64{},
		observers: map[percolator.Column]observer{}, runs: map[string]int{},
	}
	for _, o := range observers() {
		s.observers[o.column] = o
	}
	return s
}

func (s *sim) begin() *simTx {
	s.clock++
	return &simTx{
		s: s, start: s.clock, writes: map[percolator.CellKey]version{},
		notifies: map[percolator.CellKey]bool{},
	}
}

// at returns the newest version of the cell at ts.
func (s *sim) at(key percolator.CellKey, ts uint64) (version, bool) {
	versions := s.cells[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].ts <= ts {
			return versions[i], !versions[i].deleted
		}
	}
	return version{}, false
}

func (t *simTx) get(key percolator.CellKey) (percolator.Cell, bool) {
	if w, buffered := t.writes[key]; buffered {
		return percolator.Cell{CellKey: key, Value: w.value}, !w.deleted
	}
	v, ok := t.s.at(key, t.start)
	return percolator.Cell{CellKey: key, Value: v.value, CommitTS: percolator.Timestamp(v.ts)}, ok
}

func (t *simTx) GetMulti(_ context.Context, keys ...percolator.CellKey) ([]percolator.Cell, error) {
	var cells []percolator.Cell
	for _, key := range keys {
		if c, ok := t.get(key); ok {
			cells = append(cells, c)
		}
	}
	return cells, nil
}

func (t *simTx) Prefix(_ context.Context, prefix string,
	col percolator.Column) iter.Seq2[percolator.Cell, error] {
	rows := map[string]bool{}
	for key := range t.s.cells {
		rows[key.Row] = rows[key.Row] || key.Column == col
	}
	for key := range t.writes {
		rows[key.Row] = rows[key.Row] || key.Column == col
	}
	return func(yield func(percolator.Cell, error) bool) {
		for _, row := range sorted(rows) {
			if !strings.HasPrefix(row, prefix) {
				continue
			}
			if c, ok := t.get(percolator.CellKey{Row: row, Column: col}); ok && !yield(c, nil) {
				return
			}
		}
	}
}

func (t *simTx) Set(row string, col percolator.Column, value []byte) {
	t.write(row, col, version{value: slices.Clone(value)})
}
func (t *simTx) Delete(row string, col percolator.Column) {
	t.write(row, col, version{deleted: true})
}

func (t *simTx) write(row string, col percolator.Column, v version) {
	if t.s.observers[col].weak {
		panic("a weak column was written: " + col.Name)
	}
	t.writes[percolator.CellKey{Row: row, Column: col}] = v
}

func (t *simTx) Notify(row string, col percolator.Column) {
	if !t.s.observers[col].weak {
		panic("a column that is not weak was notified: " + col.Name)
	}
	t.notifies[percolator.CellKey{Row: row, Column: col}] = true
}

func (t *simTx) NotifyNow(_ context.Context, rows []string, col percolator.Column) error {
	t.s.clock++
	for _, row := range rows {
		t.s.dirty[percolator.CellKey{Row: row, Column: col}] = t.s.clock
	}
	return nil
}

func (t *simTx) Chunk() int { return 2 }

// commit ends the transaction and reports whether it committed. It fails if another has committed a
// write of the same cell since its start (first committer wins), or the same acknowledgment.
func (s *sim) commit(t *simTx) bool {
	for key := range t.writes {
		if versions := s.cells[key]; len(versions) > 0 && versions[len(versions)-1].ts > t.start {
			return false
		}
	}
	for _, trigger := range t.triggers {
		if t.strong && s.acks[trigger] > t.start {
			return false
		}
	}
	s.clock++
	for key, v := range t.writes {
		v.ts = s.clock
		s.cells[key] = append(s.cells[key], v)
		if o, observed := s.observers[key.Column]; observed && !o.weak {
			s.dirty[key] = s.clock
		}
	}
	for key := range t.notifies {
		s.dirty[key] = s.clock
	}
	for _, trigger := range t.triggers {
		if t.strong {
			s.acks[trigger], s.acked[trigger] = s.clock, t.start
		}
		if s.dirty[trigger] <= t.start {
			delete(s.dirty, trigger)
		}
	}
	return true
}

// pending returns the dirty cells in a fixed order.
func (s *sim) pending() []percolator.CellKey {
	keys := make([]percolator.CellKey, 0, len(s.dirty))
	for key := range s.dirty {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b percolator.CellKey) int {
		return strings.Compare(a.Column.Table+a.Column.Name+" "+a.Row, b.Column.Table+b.Column.Name+
			" "+b.Row)
	})
	return keys
}

// company returns one of the keys and, in batches, others of the same observer.
func (s *sim) company(keys []percolator.CellKey) []percolator.CellKey {
	first := keys[s.rng.IntN(len(keys))]
	batch := []percolator.CellKey{first}
	if s.batches == nil {
		return batch
	}
	for _, key := range keys {
		if key.Column == first.Column && key != first && s.batches.IntN(3) > 0 {
			batch = append(batch, key)
		}
	}
	s.batches.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	return batch
}

// start runs one observer for the cells on a new snapshot.
func (s *sim) start(keys []percolator.CellKey) error {
	o := s.observers[keys[0].Column]
	t := s.begin()
	t.strong = !o.weak
	for _, key := range keys {
		if t.strong {
			if v, _ := s.at(key, t.start); v.ts <= s.acked[key] { // already clean
				delete(s.dirty, key)
				continue
			}
		}
		s.runs[o.name]++
		t.triggers = append(t.triggers, key)
		if err := o.run(context.Background(), t, key.Row); err != nil {
			return fmt.Errorf("%s %s: %w", o.name, key.Row, err)
		}
	}
	if len(t.triggers) == 0 {
		return nil
	}
	t.slow = s.rng.IntN(4) == 0
	s.inflight = append(s.inflight, t)
	return nil
}

// finish commits or aborts one of the runs in flight.
func (s *sim) finish(i int) {
	t := s.inflight[i]
	s.inflight = slices.Delete(s.inflight, i, i+1)
	if !s.commit(t) {
		s.conflicts++
	}
}

// step starts or ends one run, or reports that nothing is left to do. At most width runs are in
// flight.
func (s *sim) step(width int) (idle bool, err error) {
	pending := s.pending()
	if len(s.inflight) > 0 && (len(pending) == 0 || len(s.inflight) >= width ||
		s.rng.IntN(2) == 0) {
		if i := s.rng.IntN(len(s.inflight)); !s.inflight[i].slow || s.rng.IntN(10) == 0 {
			s.finish(i)
		}
		return false, nil
	}
	if len(pending) == 0 {
		return true, nil
	}
	return false, s.start(s.company(pending))
}

// load is a loader's transaction: html nil removes the page.
func (s *sim) load(url string, html []byte) {
	t := s.begin()
	write(t, url, schema.Pages(schema.Raw), html)
	if !s.commit(t) {
		panic("a loader transaction conflicted with nobody")
	}
}

// source reads the newest versions for package batch.
func (s *sim) source(ctx context.Context, cols ...percolator.Column) iter.Seq2[percolator.Cell,
	error] {
	t := s.begin()
	return func(yield func(percolator.Cell, error) bool) {
		for _, col := range cols {
			for c, err := range t.Prefix(ctx, "", col) {
				if !yield(c, err) {
					return
				}
			}
		}
	}
}

// sorted returns the members of a set in order.
func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

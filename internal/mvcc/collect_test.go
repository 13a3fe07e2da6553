package mvcc_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// assertHeld and assertSpace are the assertions on collection in histories.
const (
	assertHeld  = "an-open-snapshot-stays-readable" // held history
	assertSpace = "what-is-gone-leaves-no-key"      // design section 3
	assertNamed = "every-long-value-is-named"
)

// wholeTable is all rows of the tests' table.
var wholeTable = mvcc.Span{Table: testTable}

// collectAll performs a pass, as a tablet does: it surveys a few entries at a time and collects the
// garbage found.
func collectAll(m *mvcctest.MemView, looked int, limits mvcc.CollectLimits, each func(*mvcc.CollectStep)) error {
	for at := (mvcc.SurveyPlace{}); !at.Done(); {
		list, _, next, err := mvcc.Survey(m, wholeTable, at, looked, looked)
		if err != nil {
			return err
		}
		at = next
		for list = mvcc.SortGarbage(list); len(list) > 0; {
			step, n, err := mvcc.CollectCells(m, list, limits)
			if err != nil {
				return err
			}
			m.Apply(step.Mutations)
			each(&step)
			list = list[n:]
		}
	}
	return nil
}

// collect performs a pass at the safepoint: over everything, looked= entries of a survey at a time,
// or with cells=(a.x) over some; entries= bounds a step. With "steps" each step's deletions are
// printed, with "kept" the later garbage.
func (s *script) collect() string {
	limits := mvcc.CollectLimits{Entries: 1 << 20, Bytes: 1 << 30, Looked: 1 << 20}
	if n := s.number("entries"); n > 0 {
		limits.Entries, limits.Looked = n, 2*n
	}
	looked := 1 << 20
	if n := s.number("looked"); n > 0 {
		looked = n
	}
	var list []mvcc.Garbage
	for _, c := range s.cells("cells") {
		g := mvcc.Garbage{Group: mvcc.GroupHistory, Cell: c, TS: s.ts("floor")}
		if start := s.ts("rolledback"); start != 0 {
			g = mvcc.Garbage{Group: mvcc.GroupRollback, Cell: c, TS: start}
		}
		list = append(list, g)
	}
	var b strings.Builder
	total := 0
	each := func(step *mvcc.CollectStep) {
		total += len(step.Mutations)
		s.showStep(&b, step)
	}
	var err error
	if !s.td.HasArg("cells") {
		err = collectAll(s.view, looked, limits, each)
	}
	for list = mvcc.SortGarbage(list); err == nil && len(list) > 0; {
		var step mvcc.CollectStep
		var n int
		step, n, err = mvcc.CollectCells(s.view, list, limits)
		s.view.Apply(step.Mutations)
		each(&step)
		list = list[n:]
	}
	if err != nil {
		return "error: " + err.Error()
	}
	fmt.Fprintf(&b, "%d entries collected", total)
	return b.String()
}

// showStep prints the parts selected by the options.
func (s *script) showStep(b *strings.Builder, step *mvcc.CollectStep) {
	if s.td.HasArg("steps") && len(step.Mutations) > 0 {
		b.WriteString("step:")
		for i := range step.Mutations {
			m := &step.Mutations[i]
			fmt.Fprintf(b, " %c %s", m.Group, show(m.Cell))
			if m.TS != 0 {
				fmt.Fprintf(b, " %d", m.TS)
			}
			if i+1 < len(step.Mutations) {
				b.WriteByte(',')
			}
		}
		b.WriteByte('\n')
	}
	if s.td.HasArg("kept") {
		for _, g := range step.Kept {
			fmt.Fprintf(b, "kept until %d: %c %s %d\n", g.From, g.Group, show(g.Cell), g.TS)
		}
	}
}

// drop table=now: the table is dropped at the timestamp.
func (s *script) drop() string {
	s.view.DroppedTS = map[mvcc.TableID]mvcc.Timestamp{testTable: s.ts("at")}
	return ""
}

// watch column=(observer,…): the observers' acknowledgments are stored next to the column. The
// notify entries of the first are at the observed cells, those of the others at their
// acknowledgments.
func (s *script) watch() string {
	for _, arg := range s.td.CmdArgs {
		watch(s.view, arg.Key, arg.Vals...)
	}
	return ""
}

// watch sets the observers of a column.
func watch(m *mvcctest.MemView, column string, observers ...string) {
	m.Observers[mvcc.ObservedColumn{Table: testTable, Column: column}] = observers
	for _, name := range observers[1:] {
		m.Own[mvcc.ObservedColumn{Table: testTable, Class: mvcc.ClassAck, Column: name}] = true
	}
}

// retire observer…: they get no more notifications.
func (s *script) retire() string {
	for _, arg := range s.td.CmdArgs {
		s.view.Retired[mvcc.ObservedColumn{Table: testTable, Class: mvcc.ClassAck, Column: arg.Key}] = true
	}
	return ""
}

// TestLongValueGoesWithItsRecord: write records decide what is collected; a value is dated by its
// transaction's start and may belong to the newest record, or to a lock.
func TestLongValueGoesWithItsRecord(t *testing.T) {
	m := mvcctest.NewMemView()
	lim := mvcc.DefaultLimits()
	lim.Inline = 3
	c := parseCell("a.x")
	for i, text := range []string{"first value", "second value"} {
		r := mvcc.OnePhaseRequest{
			StartTS: mvcc.Timestamp(10 + 10*i),
			Writes:  []mvcc.CellWriteRequest{{Cell: c, Kind: mvcc.KindPut, Value: []byte(text)}},
		}
		_, list, err := mvcc.OnePhaseCommit(m, r, r.StartTS+1, lim)
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
	}
	m.BoundTS, m.SafepointTS = 30, 30
	step, _, err := mvcc.CollectCells(m, []mvcc.Garbage{{Group: mvcc.GroupHistory, Cell: c}},
		mvcc.CollectLimits{Entries: 100, Bytes: 1 << 20, Looked: 100})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(step.Mutations)
	res, err := mvcc.Get(m, c, 30)
	if errors.Is(err, mvcc.ErrCorrupt) || string(res.Value) != "second value" {
		t.Fatalf("D-BY-KEY: the newest record's value went before it: %q, %v", res.Value, err)
	}
	if _, there, _ := m.Data(c, 10); there {
		t.Error("the value of a collected record is left")
	}
}

// TestNothingAboveTheSafepointIsCollected: a read at the safepoint, or later, returns the same as
// before.
func TestNothingAboveTheSafepointIsCollected(t *testing.T) {
	m := mvcctest.NewMemView()
	c := parseCell("a.x")
	for i := range mvcc.Timestamp(6) {
		w := mvcc.CellWriteRequest{Cell: c, Kind: mvcc.KindPut, Value: []byte{'0' + byte(i)}}
		_, list, err := mvcc.OnePhaseCommit(m,
			mvcc.OnePhaseRequest{StartTS: 10 * (i + 1), Writes: []mvcc.CellWriteRequest{w}}, 10*(i+1)+1,
			mvcc.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
	}
	m.BoundTS, m.SafepointTS = 50, 35
	if err := collectAll(m, 2, mvcc.CollectLimits{Entries: 1, Bytes: 1 << 20, Looked: 100},
		func(*mvcc.CollectStep) {}); err != nil {
		t.Fatal(err)
	}
	m.BoundTS = 35 // as an open snapshot at 35 saw it
	for at := mvcc.Timestamp(35); at < 70; at++ {
		res, err := mvcc.Get(m, c, at)
		if want := string(rune('0' + (at-11)/10)); err != nil || string(res.Value) != want {
			t.Fatalf("ABOVE-SAFEPOINT: a read at %d, safepoint 35, finds %q, %v; want %q", at,
				res.Value, err, want)
		}
	}
	for w, err := range m.Older(c, 30) {
		t.Errorf("left below the safepoint: %+v, %v", w, err)
	}
}

// TestHotCellIsCollectedOldestFirst: a cell with more garbage than a step may delete takes several
// steps, oldest first.
func TestHotCellIsCollectedOldestFirst(t *testing.T) {
	m := mvcctest.NewMemView()
	c := parseCell("a.x")
	for i := range mvcc.Timestamp(100) {
		w := mvcc.CellWriteRequest{Cell: c, Kind: mvcc.KindPut, Value: []byte("v")}
		_, list, err := mvcc.OnePhaseCommit(m,
			mvcc.OnePhaseRequest{StartTS: 2*i + 2, Writes: []mvcc.CellWriteRequest{w}}, 2*i+3,
			mvcc.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
	}
	m.BoundTS, m.SafepointTS = 300, 300
	last := mvcc.Timestamp(0)
	list, steps := []mvcc.Garbage{{Group: mvcc.GroupHistory, Cell: c}}, 0
	for ; len(list) > 0; steps++ {
		step, n, err := mvcc.CollectCells(m, list,
			mvcc.CollectLimits{Entries: 7, Bytes: 1 << 20, Looked: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if len(step.Mutations) > 8 {
			t.Fatalf("%d deletions in a step of 7", len(step.Mutations))
		}
		for _, mu := range step.Mutations {
			if mu.TS <= last {
				t.Fatalf("deleted %d after %d", mu.TS, last)
			}
			last = mu.TS
		}
		m.Apply(step.Mutations)
		list = list[n:]
	}
	if last != 199 || steps < 14 {
		t.Errorf("the last deletion is of %d after %d steps", last, steps)
	}
}

// TestCollectionFaults: a failed lookup ends the step without a deletion.
func TestCollectionFaults(t *testing.T) {
	m := mvcctest.NewMemView()
	for i := range mvcc.Timestamp(3) {
		w := mvcc.CellWriteRequest{Cell: parseCell("a.x"), Kind: mvcc.KindDelete}
		_, list, err := mvcc.OnePhaseCommit(m,
			mvcc.OnePhaseRequest{StartTS: 10*i + 10, Writes: []mvcc.CellWriteRequest{w}}, 10*i+11,
			mvcc.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
	}
	m.BoundTS, m.SafepointTS = 90, 90
	for n := range 3 {
		f := &faultyView{MemView: m, left: n}
		step, _, err := mvcc.CollectCells(f, []mvcc.Garbage{{Group: mvcc.GroupHistory, Cell: parseCell("a.x")}},
			mvcc.CollectLimits{Entries: 100, Bytes: 1 << 20, Looked: 100})
		if !errors.Is(err, errDisk) || len(step.Mutations) != 0 {
			t.Errorf("fault of lookup %d: %d deletions, %v", n, len(step.Mutations), err)
		}
	}
}

// TestDeleteStaysForEachObserver: a deleted cell stays until each observer of its column has
// processed the deletion, wherever its notify entries are.
func TestDeleteStaysForEachObserver(t *testing.T) {
	for _, waits := range []string{"a.body", "a.@two", "a.@three"} {
		m := mvcctest.NewMemView()
		m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "body"}] = mvcc.ObservedStrong
		watch(m, "body", "one", "two", "three")
		c := parseCell("a.body")
		_, list, err := mvcc.OnePhaseCommit(m, mvcc.OnePhaseRequest{
			StartTS: 1, Writes: []mvcc.CellWriteRequest{{Cell: c, Kind: mvcc.KindDelete}},
		}, 2, mvcc.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
		for _, n := range notifyCells(m, c) {
			if show(n) != waits {
				_, list, err := mvcc.ClearNotify(m, mvcc.ClearNotifyRequest{Cell: n, UpTo: 2})
				if err != nil {
					t.Fatal(err)
				}
				m.Apply(list)
			}
		}
		m.SafepointTS = 10
		limits := mvcc.CollectLimits{Entries: 10, Bytes: 1 << 20, Looked: 10}
		step, _, err := mvcc.CollectCells(m, []mvcc.Garbage{{Group: mvcc.GroupHistory, Cell: c, TS: 2}}, limits)
		if err != nil || len(step.Mutations) != 0 {
			t.Errorf("UNSEEN-DELETE: while %s waits, %+v is collected, %v", waits, step.Mutations, err)
		}
	}
}

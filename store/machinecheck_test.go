package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/percolator-go/percolator/store"
)

// Comparison of a store with a world after its machine has replayed.

// check returns an error that begins with "lost" where the store differs from the world.
func (m *machine) check(w *world) error {
	for id := uint64(1); id < w.NextTablet; id++ {
		if w.Tablets[id] == nil {
			if _, err := m.s.OpenLog(id); !errors.Is(err, store.ErrNoLog) {
				return fmt.Errorf("lost: tablet %d is gone, and has a log: %w", id, err)
			}
		} else if err := m.checkLog(id, w.Tablets[id]); err != nil {
			return fmt.Errorf("lost: tablet %d: %w", id, err)
		}
	}
	snap := m.s.SnapWithLocks()
	defer snap.Close()
	if err := m.checkFigures(snap, w); err != nil {
		return err
	}
	if err := checkRecords(snap, w); err != nil {
		return err
	}
	return checkCells(snap, w)
}

func (m *machine) checkLog(id uint64, t *worldTablet) error {
	entries, err := m.entries(id)
	if err != nil {
		return err
	}
	l, err := m.s.OpenLog(id)
	if err != nil {
		return err
	}
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	checkpoint, _ := l.Checkpoint()
	if first <= t.Begin || first > checkpoint+1 || last != t.Last ||
		len(entries) != int(last+1-first) {
		return fmt.Errorf("the log is [%d, %d] with a checkpoint at %d, and should be (%d, %d]",
			first, last, checkpoint, t.Begin, t.Last)
	}
	hs, _, _ := l.InitialState()
	if c := hs.GetCommit(); hs.GetTerm() != t.Term || hs.GetVote() != t.Vote || c < t.Commit ||
		c > t.Committed {
		return fmt.Errorf("the HardState is %v, and should be %d, %d, %d to %d", hs, t.Term, t.Vote,
			t.Commit, t.Committed)
	}
	for _, e := range entries {
		if want := t.Entries[e.GetIndex()]; e.GetTerm() != want.Term || opOf(e) != want.Op {
			return fmt.Errorf("entry %d is %v, and should be %v", e.GetIndex(), e, want)
		}
	}
	return nil
}

func (m *machine) checkFigures(snap *store.Snap, w *world) error {
	got := map[uint64]tabletFigures{}
	for e, err := range snap.TabletStates() {
		if err != nil {
			return err
		}
		if t := m.tablets[e.Tablet]; t != nil {
			got[e.Tablet] = *t
		} else {
			return fmt.Errorf("lost: tablet %d has come back", e.Tablet)
		}
	}
	want := map[uint64]tabletFigures{}
	for id, t := range w.Tablets {
		want[id] = t.Figures
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("lost: figures are\n%+v, and should be\n%+v", got, want)
	}
	return nil
}

func checkRecords(snap *store.Snap, w *world) error {
	for i := range 3 {
		name := fmt.Sprint("record ", i)
		if v, ok, err := snap.Record(name); err != nil || ok != (w.Records[name] != "") ||
			string(v) != w.Records[name] {
			return fmt.Errorf("lost: %s is %q, and should be %q: %w", name, v, w.Records[name], err)
		}
	}
	tombstones := map[uint64]uint64{}
	for e, err := range snap.Tombstones() {
		if err != nil {
			return err
		}
		tombstones[e.Tablet] = binary.BigEndian.Uint64(e.State)
	}
	if !maps.Equal(tombstones, w.Tombstones) {
		return fmt.Errorf("lost: tombstones are %v, and should be %v", tombstones, w.Tombstones)
	}
	for e, err := range snap.Installings() {
		return fmt.Errorf("lost: tablet %d has a marker: %w", e.Tablet, err)
	}
	return nil
}

func checkCells(snap *store.Snap, w *world) error {
	n := 0
	var wrong error
	err := snap.Cursor(store.Rows{Table: 16}).Each(func(key, value []byte) bool {
		wrong = checkCell(key, value, w)
		n++
		return wrong == nil
	})
	if err = errors.Join(err, wrong); err != nil {
		return fmt.Errorf("lost: %w", err)
	}
	if n != len(w.Cells) {
		return fmt.Errorf("lost: %d rows, and should be %d", n, len(w.Cells))
	}
	return nil
}

func checkCell(key, value []byte, w *world) error {
	_, c, _, err := store.DecodeKey(key)
	if err != nil {
		return err
	}
	var row int
	if _, err := fmt.Sscanf(c.Row, "row%d", &row); err != nil {
		return err
	}
	want, ok := w.Cells[row]
	switch {
	case !ok:
		return fmt.Errorf("row %d has come back", row)
	case !bytes.Equal(key, rowKey(row)):
		return fmt.Errorf("row %d has the key %q", row, key)
	case !bytes.Equal(value, rowValue(&want)):
		return fmt.Errorf("row %d has %d bytes of %.9x, and should have %d of %.8x", row, len(value),
			value, want.Size, want.Stamp)
	}
	return nil
}

package txn_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/percolator-go/percolator/internal/txn"
)

// address is a cell of the model.
type address struct{ row, column string }

// bufferedWrite is one write of a transaction.
type bufferedWrite struct {
	k      txn.Key
	value  []byte
	remove bool
}

func buffer(tx *txn.Txn, list []bufferedWrite) {
	for _, w := range list {
		if w.remove {
			tx.Delete(w.k)
		} else {
			tx.Set(w.k, w.value)
		}
	}
}

// TestScanAgainstModel compares scans with a map: rows of any bytes, both directions, limits,
// bounds, columns, buffered writes, and tablets that split between the requests of pages.
func TestScanAgainstModel(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	tables := 0
	rapid.Check(t, func(t *rapid.T) {
		tables++
		name := fmt.Sprintf("t%d", tables)
		bytesOf := rapid.StringOfN(rapid.RuneFrom([]rune{0, 1, 'a', 'b', 255, 0x10ffff}), 0, 3, -1)
		id := w.AddTable(name, slices.DeleteFunc(rapid.SliceOfN(bytesOf, 0, 4).Draw(t, "splits"),
			func(k string) bool {
				return k == ""
			})...)
		columns := []string{"", "x", "y\x00"}
		model := map[address]string{}
		draw := func(label string, n int) (list []bufferedWrite) {
			for i := range rapid.IntRange(0, n).Draw(t, label) {
				a := address{bytesOf.Draw(t, "row"), rapid.SampledFrom(columns).Draw(t, "column")}
				w := bufferedWrite{
					k:     txn.Key{Table: name, Row: a.row, Column: a.column},
					value: []byte(fmt.Sprint(label, i)),
				}
				if w.remove = rapid.IntRange(0, 3).Draw(t, "delete") == 0; w.remove {
					delete(model, a)
				} else {
					model[a] = string(w.value)
				}
				list = append(list, w)
			}
			return list
		}
		stored := draw("stored", 12)
		if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			buffer(tx, stored)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		tx, err := c.Begin(w.ctx, txn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		buffer(tx, draw("buffered", 6))
		for range 4 {
			spec := txn.ScanSpec{
				Table: name, From: bytesOf.Draw(t, "from"), Before: bytesOf.Draw(t, "before"),
				HasBefore: rapid.Bool().Draw(t, "bounded"),
				Reverse:   rapid.Bool().Draw(t, "reverse"),
				Limit:     rapid.IntRange(0, 4).Draw(t, "limit"),
				Columns:   rapid.SliceOfN(rapid.SampledFrom(columns), 0, 2).Draw(t, "columns"),
			}
			var got []string
			for cell, err := range tx.Scan(w.ctx, spec) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%q %q %s", cell.Cell.Row, cell.Cell.Column,
					cell.Value))
				if row := bytesOf.Draw(t, "split"); row != "" && len(got)%3 == 0 {
					w.Split(id, row)
				}
			}
			if want := expected(model, spec); !slices.Equal(got, want) {
				t.Fatalf("%+v:\ngot  %q\nwant %q", spec, got, want)
			}
		}
	})
}

// expected is the model's result of the scan.
func expected(model map[address]string, spec txn.ScanSpec) []string {
	var in []address
	for a := range model {
		if a.row >= spec.From && (!spec.HasBefore || a.row < spec.Before) &&
			(len(spec.Columns) == 0 || slices.Contains(spec.Columns, a.column)) {
			in = append(in, a)
		}
	}
	slices.SortFunc(in, func(a, b address) int {
		return cmp.Or(strings.Compare(a.row, b.row), strings.Compare(a.column, b.column))
	})
	if spec.Reverse {
		slices.Reverse(in)
	}
	var out []string
	rows := map[string]bool{}
	for _, a := range in {
		rows[a.row] = true
		if spec.Limit > 0 && len(rows) > spec.Limit {
			break
		}
		out = append(out, fmt.Sprintf("%q %q %s", a.row, a.column, model[a]))
	}
	return out
}

// TestScanManyPages reads more than one page in one tablet, with values that fill a page each.
func TestScanManyPages(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	value := bytes.Repeat([]byte{1}, 700<<10)
	var rows []string
	for i := range 9 {
		row := fmt.Sprintf("a%d", i)
		rows = append(rows, row)
		if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			tx.Set(key(row), value)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, reverse := range []bool{false, true} {
		before := c.Stats().ScanPages
		var got []string
		s, err := c.Snapshot(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for cell, err := range s.Scan(w.ctx, txn.ScanSpec{Table: "t", Reverse: reverse}) {
			if err != nil || len(cell.Value) != len(value) {
				t.Fatal(err, len(cell.Value))
			}
			got = append(got, cell.Cell.Row)
		}
		if reverse {
			slices.Reverse(got)
		}
		if !slices.Equal(got, rows) {
			t.Errorf("reverse %v: %q", reverse, got)
		}
		if pages := c.Stats().ScanPages - before; pages < 5 {
			t.Errorf("%d pages", pages)
		}
	}
}

// TestScanMeetsLock: a scan stops at a lock, resolves it and continues.
func TestScanMeetsLock(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		w := newWorld(t)
		c, _ := w.client(txn.Config{})
		w.set(c, "1", "a", "b", "h", "z")
		w.abandonLocks(nil, "a", "b", "h") // a dead transaction's locks
		s, err := c.Snapshot(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for cell, err := range s.Scan(w.ctx, txn.ScanSpec{Table: "t", Reverse: reverse}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, cell.Cell.Row+string(cell.Value))
		}
		slices.Sort(got)
		if want := []string{"a1", "b1", "h1", "z1"}; !slices.Equal(got, want) {
			t.Errorf("reverse %v: %q", reverse, got)
		}
		if n := w.Locks(w.table); n != 0 {
			t.Errorf("%d locks left", n)
		}
	}
}

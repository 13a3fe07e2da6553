package hashed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/hashed"
	"github.com/percolator-go/percolator/tuple"
)

var (
	events = hashed.New("events", 8)
	text   = percolator.Column{Table: "events", Name: "text"}
)

// Events are written by time, over eight tablets, and read in order of time.
func Example() {
	register := events.Register // what app.Main is given
	write := func(tx *percolator.Tx, day, number int, what string) {
		tx.Set(events.Row(day, number), text, []byte(what))
	}
	read := func(ctx context.Context, r percolator.Reader, day int) error {
		for cell, err := range events.Scan(ctx, r, []any{day}, text) {
			if err != nil {
				return err
			}
			fmt.Printf("%s\n", cell.Value)
		}
		return nil
	}
	_, _, _ = register, write, read
}

func TestScanMerges(t *testing.T) {
	t.Parallel()
	n := percolatortest.Start(t, events.Register)
	other := percolator.Column{Table: "events", Name: "more"}
	used := map[any]bool{}
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for day := range 3 {
			for number := range 50 {
				row := events.Row(day, number)
				elements, err := tuple.Parse(row)
				if err != nil {
					return err
				}
				used[elements[0]] = true
				tx.Set(row, text, fmt.Appendf(nil, "%d/%d", day, number))
				tx.Set(row, other, nil)
			}
		}
		return nil
	})
	if len(used) != 8 {
		t.Errorf("%d shards are used", len(used))
	}
	read := func(stop int, prefix ...any) (got []string) {
		n.Transact(t, func(ctx context.Context, tx *percolator.Tx) error {
			got = nil
			for cell, err := range events.Scan(ctx, tx, prefix) {
				if err != nil {
					return err
				}
				elements, err := hashed.Elements(cell.Row)
				if err != nil {
					return err
				}
				var day, number int
				if err := tuple.Unpack(elements, &day, &number); err != nil {
					return err
				}
				got = append(got, fmt.Sprint(day, number, cell.Column.Name))
				if len(got) == stop {
					break
				}
			}
			return nil
		})
		return got
	}
	var want []string
	for number := range 50 {
		want = append(want, fmt.Sprint(1, number, "more"), fmt.Sprint(1, number, "text"))
	}
	if got := read(0, 1); !slices.Equal(got, want) {
		t.Errorf("a day: %q", got)
	}
	if got := read(0); len(got) != 300 || !slices.Equal(got[100:200], want) {
		t.Errorf("all: %d cells", len(got))
	}
	if got := read(5, 1); !slices.Equal(got, want[:5]) {
		t.Errorf("the first five: %q", got)
	}
	if got := read(0, 7); got != nil {
		t.Errorf("a day without events: %q", got)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{0, -1, hashed.MaxShards + 1} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, percolator.ErrInvalid) {
					t.Errorf("%d shards: %v", shards, err)
				}
			}()
			hashed.New("t", shards)
		}()
	}
	if _, err := hashed.Elements(""); !errors.Is(err, percolator.ErrInvalid) {
		t.Error(err)
	}
	var format *tuple.FormatError
	if _, err := hashed.Elements("\xff"); !errors.As(err, &format) {
		t.Error(err)
	}
	// An error of a shard's scan ends the merge.
	n := percolatortest.Start(t, nil)
	err := n.DB().Transact(t.Context(), func(ctx context.Context, tx *percolator.Tx) error {
		for _, err := range events.Scan(ctx, tx, nil, text) {
			return err
		}
		return nil
	})
	if !errors.Is(err, percolator.ErrNoTable) {
		t.Errorf("a scan of a table that is not there: %v", err)
	}
}

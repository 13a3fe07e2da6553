package percolator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	percolator "github.com/percolator-go/percolator"
)

// TestView: all reads see one state, the function's error is returned, and the snapshot is closed
// however the function ends.
func TestView(t *testing.T) {
	ctx, db, _ := open(t)
	put(ctx, t, db, "a")
	boom := errors.New("boom")
	var kept []*percolator.Snapshot
	err := db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		kept = append(kept, s)
		put(ctx, t, db, "b")
		if _, ok, err := s.Get(ctx, "b", column); ok || err != nil {
			t.Errorf("the snapshot shows a later row: %v, %v", ok, err)
		}
		if _, ok, err := s.Get(ctx, "a", column); !ok || err != nil {
			t.Errorf("the snapshot lacks an earlier row: %v, %v", ok, err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("View returned %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = db.View(ctx, func(_ context.Context, s *percolator.Snapshot) error {
			kept = append(kept, s)
			panic(boom)
		})
	}()
	for _, s := range kept {
		if _, _, err := s.Get(ctx, "a", column); !errors.Is(err, percolator.ErrClosed) {
			t.Errorf("the snapshot is open after View: %v", err)
		}
	}
	if len(kept) != 2 {
		t.Errorf("fn ran %d times, want 2", len(kept))
	}
}

func ExampleDB_View() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	err = db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		for cell, err := range s.Scan(ctx, percolator.Rows("books").Prefix("novel/"), title) {
			if err != nil {
				return err
			}
			fmt.Printf("%s: %s\n", cell.Row, cell.Value)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// novel/emma: Emma
	// novel/ulysses: Ulysses
	// <nil>
}

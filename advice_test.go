package percolator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/percolator-go/percolator"
)

// Advice returns the text that the command line prints after "next:".
func ExampleAdvice() {
	ctx := context.Background()
	db, done := openExample("reports")
	defer done()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("r7", percolator.Column{Table: "report", Name: "title"}, []byte("Trams"))
		return nil
	})
	fmt.Println(err)
	fmt.Println(percolator.Advice(err))
	// Output:
	// percolator: not committed: no such table: "report"
	// `table ls` lists the tables, `table create NAME` creates one
}

// TestErrorsDoNotStutter: an error text names the package once, whatever it wraps, and
// errors.Is and errors.As find the wrapped errors.
func TestErrorsDoNotStutter(t *testing.T) {
	ctx, db, _ := open(t)
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a", column, make([]byte, 5<<20))
		return nil
	})
	var limit *percolator.LimitError
	if !errors.As(err, &limit) || !errors.Is(err, percolator.ErrTooLarge) ||
		strings.Count(err.Error(), "percolator: ") != 1 ||
		!strings.HasPrefix(err.Error(), "percolator: not committed: value of ") {
		t.Errorf("%v", err)
	}
	if advice := percolator.Advice(err); !strings.Contains(advice, "4 MiB") {
		t.Errorf("advice: %q", advice)
	}
	if advice := percolator.Advice(errors.New("a user's")); advice != "" {
		t.Errorf("advice for a foreign error: %q, want none", advice)
	}
}

// TestLimitZero: Limit(0) and a negative limit do not limit a scan.
func TestLimitZero(t *testing.T) {
	ctx, db, _ := open(t)
	put(ctx, t, db, "a", "b")
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for limit, want := range map[int]int{0: 2, 1: 1, -1: 2} {
		rows := 0
		for _, err := range s.Scan(ctx, percolator.Rows("t").Limit(limit)) {
			if err != nil {
				t.Fatal(err)
			}
			rows++
		}
		if rows != want {
			t.Errorf("Limit(%d): %d rows, want %d", limit, rows, want)
		}
	}
}

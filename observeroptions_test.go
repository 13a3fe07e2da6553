package percolator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator"
)

var text = percolator.Column{Table: "docs", Name: "text"}

func index(context.Context, *percolator.Tx, percolator.Notification) error { return nil }

// A document is indexed once it has not changed for five seconds, or 50 seconds after its
// first change.
func ExampleDebounce() {
	r := percolator.NewRegistry()
	r.Strong("index", text, index, percolator.Debounce(5*time.Second))
	fmt.Println(r.Err(), r.Observers()[0].Debounce)
	// Output: <nil> 5s
}

// Current documents are indexed before the archive.
func ExamplePriority() {
	r := percolator.NewRegistry()
	r.Strong("index", text, index, percolator.Priority(func(n percolator.Notification) int {
		if strings.HasPrefix(n.Row, "archive/") {
			return 0
		}
		return 1
	}))
	front := r.Observers()[0].Priority
	fmt.Println(front(percolator.Notification{Row: "archive/1999"}),
		front(percolator.Notification{Row: "news/today"}))
	// Output: 0 1
}

// Every 200 consecutive conflicts of a row count as one failed run; the row is parked after
// three of them.
func ExampleMaxConflicts() {
	r := percolator.NewRegistry()
	r.Strong("index", text, index, percolator.MaxConflicts(200), percolator.MaxAttempts(3))
	fmt.Println(r.Err(), r.Observers()[0].MaxConflicts)
	// Output: <nil> 200
}

// TestObserverOptionsAreChecked: registration rejects invalid options.
func TestObserverOptionsAreChecked(t *testing.T) {
	for _, opt := range []percolator.ObserverOption{
		percolator.MaxConflicts(0), percolator.Debounce(-1), percolator.Debounce(25 * time.Hour),
	} {
		r := percolator.NewRegistry()
		r.Strong("index", text, index, opt)
		if err := r.Err(); !errors.Is(err, percolator.ErrInvalid) || len(r.Observers()) != 0 {
			t.Errorf("%v, %d observers", err, len(r.Observers()))
		}
	}
}

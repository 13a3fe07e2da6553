package percolator_test

import (
	"context"
	"errors"
	"testing"

	percolator "github.com/percolator-go/percolator"
)

// TestLoadThen: LoadThen reports each outcome once, and Close does not report it again.
func TestLoadThen(t *testing.T) {
	ctx, db, _ := open(t)
	l := db.Loader(percolator.LoaderConfig{Workers: 1})
	boom := errors.New("boom")
	outcomes := make(chan error, 2)
	for _, fail := range []error{nil, boom} {
		err := l.LoadThen(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("then", column, []byte("v"))
			return fail
		}, func(err error) { outcomes <- err })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close reports an error that then has received: %v", err)
	}
	if a, b := <-outcomes, <-outcomes; a != nil || !errors.Is(b, boom) {
		t.Errorf("outcomes %v and %v, want nil and boom", a, b)
	}
	err := l.LoadThen(ctx, nil, func(error) { t.Error("called although nothing was queued") })
	if !errors.Is(err, percolator.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

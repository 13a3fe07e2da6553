package changes

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

// memory is an Index that reports its changes and flushes.
type memory struct {
	rows    map[string]string
	changed chan struct{}
	flushed chan struct{}
}

func newMemory() *memory {
	return &memory{rows: map[string]string{}, changed: make(chan struct{}, 100), flushed: make(chan struct{}, 100)}
}

func (m *memory) Put(row string, value []byte) {
	m.rows[row] = string(value)
	m.changed <- struct{}{}
}

func (m *memory) Delete(row string) {
	delete(m.rows, row)
	m.changed <- struct{}{}
}

func (m *memory) Flush() error {
	m.flushed <- struct{}{}
	return nil
}

// await waits for n elements.
func await(ctx context.Context, t *testing.T, from <-chan struct{}, n int) {
	t.Helper()
	for range n {
		select {
		case <-from:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
}

func TestIndexFollows(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db := percolatortest.Start(t, nil).DB()
	body := percolator.Column{Table: "documents", Name: "body"}
	write := func(change func(tx *percolator.Tx)) {
		t.Helper()
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			change(tx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: body.Table}); err != nil {
		t.Fatal(err)
	}
	write(func(tx *percolator.Tx) {
		tx.Set("a", body, []byte("1"))
		tx.Set("b", body, []byte("1"))
	})
	following, stop := context.WithCancel(ctx)
	one, two, ended := newMemory(), newMemory(), make(chan error, 2)
	go func() {
		_, err := follow(following, db, one)
		ended <- err
	}()
	go func() { ended <- keep(following, db, two) }()
	await(ctx, t, one.changed, 2)
	await(ctx, t, two.flushed, 1) // the subscription exists, and its first position is stored
	write(func(tx *percolator.Tx) {
		tx.Set("a", body, []byte("2"))
		tx.Delete("b", body)
	})
	await(ctx, t, one.changed, 2)
	await(ctx, t, two.flushed, 2) // one of them after the changes
	stop()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	want := map[string]string{"a": "2"}
	if !maps.Equal(one.rows, want) || !maps.Equal(two.rows, want) {
		t.Errorf("indexes %v and %v, want %v", one.rows, two.rows, want)
	}
}

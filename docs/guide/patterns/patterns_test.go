package patterns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/tuple"
)

func TestSomebodyStaysOnCall(t *testing.T) {
	n := percolatortest.Start(t, nil,
		percolatortest.Tables(percolator.TableSpec{Name: onCall.Column.Table}))
	for range 20 {
		n.Set(t, "ann", onCall.Column, "yes")
		n.Set(t, "bob", onCall.Column, "yes")
		var both sync.WaitGroup
		for who, other := range map[string]string{"ann": "bob", "bob": "ann"} {
			both.Go(func() {
				err := leave(t.Context(), n.DB(), who, other)
				if err != nil && !errors.Is(err, errLast) {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if left := n.Column(t, onCall.Column); len(left) != 1 {
			t.Fatalf("%d doctors are on call, want 1: %v", len(left), left)
		}
	}
}

func TestAllFollowersAreNotified(t *testing.T) {
	var mu sync.Mutex
	notified := map[string]int{}
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		register(r)
		r.Weak("count", refresh, func(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
			mu.Lock()
			defer mu.Unlock()
			notified[n.Row]++
			return nil
		})
	}, percolatortest.Tables(percolator.TableSpec{Name: follows.Column.Table}))
	n.Inject(t, percolatortest.Fault{Kind: percolatortest.CommitConflicts, Observer: "spread", Times: 2})
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 2*page + 10 {
			follows.Set(tx, tuple.Pack("ada", fmt.Sprint("reader", i)), "2026")
		}
		return nil
	})
	n.Set(t, "ada", post, "a post")
	n.RunUntilIdle(t)
	mu.Lock()
	defer mu.Unlock()
	if len(notified) != 2*page+10 {
		t.Errorf("%d readers are notified", len(notified))
	}
}

func TestWordsAreCounted(t *testing.T) {
	n := percolatortest.Start(t, register)
	n.Inject(t, percolatortest.Fault{Kind: percolatortest.ClearLost, Observer: "words", Times: 1})
	n.Set(t, "a", body.Column, "three short words")
	n.Set(t, "b", body.Column, "two words")
	n.RunUntilIdle(t)
	n.Delete(t, "b", body.Column)
	n.RunUntilIdle(t)
	if got := n.Column(t, words.Column); len(got) != 1 || got["a"] != "3" {
		t.Errorf("the words are %v", got)
	}
}

package unique_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/unique"
)

// A user signs up with an address that no other user has.
func Example() {
	addresses := unique.New("addresses")
	users := percolator.Column{Table: "users", Name: "address"}
	signUp := func(ctx context.Context, db *percolator.DB, user, address string) error {
		return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			if err := addresses.Claim(ctx, tx, address, user); err != nil {
				return err // errors.Is(err, unique.ErrTaken): another has it
			}
			tx.Set(user, users, []byte(address))
			return nil
		})
	}
	_ = signUp
}

// TestOneOwner makes many claims of the same values concurrently, under lost replies and conflicts:
// each value has exactly the one owner whose claim succeeded.
func TestOneOwner(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		percolatortest.CommitConflicts, percolatortest.CommitReplyLost, percolatortest.TabletUnavailable,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			c := unique.New("names")
			n := percolatortest.Start(t, nil,
				percolatortest.Tables(percolator.TableSpec{Name: "names"}))
			n.Inject(t, percolatortest.Fault{Kind: kind, Times: 5})
			const values, claimants = 10, 8
			var mu sync.Mutex
			got := map[string][]string{}
			var all sync.WaitGroup
			for i := range claimants {
				all.Go(func() {
					me := fmt.Sprint("claimant ", i)
					for v := range values {
						value := fmt.Sprint(v)
						err := n.DB().Transact(t.Context(),
							func(ctx context.Context, tx *percolator.Tx) error {
								return c.Claim(ctx, tx, value, me)
							})
						switch {
						case err == nil:
							mu.Lock()
							got[value] = append(got[value], me)
							mu.Unlock()
						case !errors.Is(err, unique.ErrTaken):
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			owners := n.Column(t, percolator.Column{Table: "names", Name: "owner"})
			for v := range values {
				value := fmt.Sprint(v)
				if len(got[value]) != 1 || owners[value] != got[value][0] {
					t.Errorf("%s: claimed by %q, owned by %q", value, got[value], owners[value])
				}
			}
		})
	}
}

func TestChangeAndRelease(t *testing.T) {
	t.Parallel()
	c := unique.New("names")
	n := percolatortest.Start(t, nil, percolatortest.Tables(percolator.TableSpec{Name: "names"}))
	try := func(fn func(context.Context, *percolator.Tx) error) error {
		return n.DB().Transact(t.Context(), fn)
	}
	claim := func(value, owner string) error {
		return try(func(ctx context.Context, tx *percolator.Tx) error {
			return c.Claim(ctx, tx, value, owner)
		})
	}
	if err := errors.Join(claim("a", "ann"), claim("a", "ann"), claim("b", "bob")); err != nil {
		t.Fatal(err)
	}
	// To a value that is already claimed: neither changes.
	err := try(func(ctx context.Context, tx *percolator.Tx) error {
		return c.Change(ctx, tx, "a", "b", "ann")
	})
	var taken *unique.TakenError
	if !errors.As(err, &taken) || taken.Owner != "bob" {
		t.Fatalf("%v", err)
	}
	if err := claim("a", "bob"); !errors.Is(err, unique.ErrTaken) {
		t.Fatalf("a failed change has released: %v", err)
	}
	if err := try(func(ctx context.Context, tx *percolator.Tx) error {
		// bob's release of ann's value has no effect.
		return errors.Join(c.Release(ctx, tx, "a", "bob"), c.Change(ctx, tx, "a", "a", "ann"),
			c.Change(ctx, tx, "a", "c", "ann"))
	}); err != nil {
		t.Fatal(err)
	}
	if got := n.Column(t, percolator.Column{Table: "names", Name: "owner"}); len(got) != 2 ||
		got["c"] != "ann" || got["b"] != "bob" {
		t.Fatalf("%v", got)
	}
	if err := claim("d", ""); !errors.Is(err, percolator.ErrInvalid) {
		t.Fatalf("claimed for nobody: %v", err)
	}
}
